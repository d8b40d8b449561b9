#include "runtime/data/sources/synthetic_dataset.h"

#include <fmt/format.h>

#include <array>
#include <charconv>

#include "runtime/base/error.h"

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
        fmt::format("--dataset: expected synthetic:CxHxW,classes,samples like "
                    "synthetic:3x224x224,1000,5000, got \"synthetic:{}\"",
                    text));
  }
  return {{values[0], values[1], values[2]}, values[3], values[4]};
}

std::int64_t SyntheticDataset::label(std::int64_t index) const {
  return static_cast<std::int64_t>(mix(seed_ ^ mix(static_cast<std::uint64_t>(index))) %
                                   static_cast<std::uint64_t>(spec_.classes));
}

void SyntheticDataset::decode(std::int64_t index, PixelLayout layout, float* out) const {
  const SampleShape& shape = spec_.shape;
  const std::int64_t plane = shape.height * shape.width;
  const std::uint64_t start = mix(seed_ + 1) ^ mix(static_cast<std::uint64_t>(index) + 1);
  const std::uint64_t base = static_cast<std::uint64_t>(label(index) * 128 / spec_.classes);
  for (std::int64_t i = 0; i < shape.numel(); ++i) {
    const std::int64_t to = layout == PixelLayout::chw ? i : i % plane * shape.channels + i / plane;
    out[to] = static_cast<float>(base + mix(start + static_cast<std::uint64_t>(i)) % 128) / 255.0F;
  }
}

}  // namespace dtrain
