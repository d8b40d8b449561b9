#include "runtime/data/formats/elements.h"

namespace dtrain {
namespace {

template <class Bits>
void copy_bits(const View& from, const View& to) {
  convert_elements<Bits, Bits>(from, to, [](Bits bits) { return bits; });
}

}  // namespace

void copy_elements(const View& from, const View& to) {
  if (from.is_contiguous() && to.is_contiguous()) {
    std::memcpy(to.data, from.data, static_cast<std::size_t>(to.numel()) * size_of(to.dtype));
    return;
  }
  switch (size_of(to.dtype)) {
    case 1:
      return copy_bits<std::uint8_t>(from, to);
    case 2:
      return copy_bits<std::uint16_t>(from, to);
    case 4:
      return copy_bits<std::uint32_t>(from, to);
    default:
      return copy_bits<std::uint64_t>(from, to);
  }
}

View sample_of(const View& samples, std::int64_t index) {
  View sample{samples.as<std::byte>() +
                  index * samples.strides[0] * static_cast<std::int64_t>(size_of(samples.dtype)),
              samples.dtype,
              {},
              {}};
  for (int i = 1; i < samples.rank(); ++i) {
    sample.shape.push_back(samples.shape[i]);
    sample.strides.push_back(samples.strides[i]);
  }
  return sample;
}

}  // namespace dtrain
