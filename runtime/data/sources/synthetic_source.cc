#include "runtime/data/sources/synthetic_source.h"

#include <fmt/format.h>

#include <array>
#include <charconv>

#include "runtime/base/error.h"
#include "runtime/data/sources/pixels.h"

namespace dtrain {
namespace {

/// SplitMix64 (Steele, Lea and Flood 2014): one well-mixed number for each position.
std::uint64_t mix(std::uint64_t value) {
  value += 0x9E3779B97F4A7C15ULL;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ULL;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBULL;
  return value ^ (value >> 31);
}

}  // namespace

SyntheticSpec parse_synthetic(std::string_view text) {
  constexpr std::string_view kSeparators = "xx,,";
  constexpr std::int64_t kMost = 1LL << 31;
  std::array<std::int64_t, 5> values{};
  const char* at = text.data();
  const char* const end = text.data() + text.size();
  bool good = true;
  for (std::size_t i = 0; i < values.size() && good; ++i) {
    const auto [next, error] = std::from_chars(at, end, values[i]);
    good = error == std::errc() && values[i] >= 1 && values[i] < kMost;
    at = next;
    if (i == kSeparators.size()) {
      good = good && at == end;
    } else if (good) {
      good = at != end && *at == kSeparators[i];
      ++at;
    }
  }
  if (!good) {
    throw UsageError(
        fmt::format("dataset: expected synthetic:CxHxW,classes,samples like "
                    "synthetic:3x224x224,1000,5000, got \"synthetic:{}\"",
                    text));
  }
  return {{values[0], values[1], values[2]}, values[3], values[4]};
}

SyntheticSource::SyntheticSource(std::string name, const SyntheticSpec& spec, std::uint64_t seed)
    : name_(std::move(name)), spec_(spec), fields_(labelled_image(spec.shape, spec.classes)), seed_(seed) {}

void SyntheticSource::read(std::int64_t index, std::span<const View> outputs, KeyedGenerator&) const {
  const auto label = static_cast<std::int64_t>(mix(seed_ ^ mix(static_cast<std::uint64_t>(index))) %
                                               static_cast<std::uint64_t>(spec_.classes));
  *outputs[1].as<std::int64_t>() = label;
  const std::uint64_t start = mix(seed_ + 1) ^ mix(static_cast<std::uint64_t>(index) + 1);
  const auto base = static_cast<std::uint64_t>(label * 128 / spec_.classes);
  const View& out = outputs[0];
  const auto fill = [&](auto* to, auto convert) {
    std::uint64_t i = 0;
    for (std::int64_t c = 0; c < out.shape[0]; ++c) {
      for (std::int64_t y = 0; y < out.shape[1]; ++y) {
        auto* const row = to + c * out.strides[0] + y * out.strides[1];
        for (std::int64_t x = 0; x < out.shape[2]; ++x)
          row[x * out.strides[2]] = convert(base + mix(start + i++) % 128);
      }
    }
  };
  if (out.dtype == DType::u8) {
    return fill(out.as<std::uint8_t>(), [](std::uint64_t pixel) { return static_cast<std::uint8_t>(pixel); });
  }
  fill(out.as<float>(), [](std::uint64_t pixel) { return static_cast<float>(pixel) / 255.0F; });
}

}  // namespace dtrain
