// The random numbers of torchvision's transforms, in its order and with its rounding, from any generator of
// 32-bit words (next32()): from Generator, which is PyTorch's, they are torchvision's own; from a
// KeyedGenerator they depend on seed, epoch and sample alone.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/data/images/augmentation.h"
#include "runtime/data/images/picture_ops.h"

namespace dtrain::draws {

/// As torch.empty(1).uniform_(low, high): one word, of which 24 bits count.
template <class Words>
float uniform(Words& words, float low, float high) {
  const float x = static_cast<float>(words.next32() & ((1U << 24) - 1)) * (1.0F / (1U << 24));
  return std::fma(x, high - low, low);
}

/// As torch.randint(n, (1,)) for n < 2^32: one word.
template <class Words>
int below(Words& words, int n) {
  return static_cast<int>(words.next32() % static_cast<std::uint32_t>(n));
}

/// As Python's int(round(x)): halves to even.
inline int rounded(double x) { return static_cast<int>(std::nearbyint(x)); }

/// As RandomResizedCrop.get_params: a part of 8 to 100 % of the area, three by four to four by three; after
/// ten tries that do not fit, the middle.
template <class Words>
Region random_resized_crop(Words& words, PictureSize size) {
  constexpr float kLeast = 0.08F, kMost = 1.0F;
  constexpr double kNarrow = 3.0 / 4.0, kWide = 4.0 / 3.0;
  const float narrow = std::log(static_cast<float>(kNarrow)), wide = std::log(static_cast<float>(kWide));
  const double area = static_cast<double>(size.height) * size.width;
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double target = area * uniform(words, kLeast, kMost);
    const double ratio = std::exp(uniform(words, narrow, wide));
    const int width = rounded(std::sqrt(target * ratio)), height = rounded(std::sqrt(target / ratio));
    if (width < 1 || width > size.width || height < 1 || height > size.height) continue;
    const int top = below(words, size.height - height + 1);
    const int left = below(words, size.width - width + 1);
    return {left, top, width, height};
  }
  int width = size.width, height = size.height;
  const double ratio = static_cast<double>(width) / height;
  if (ratio < kNarrow) height = rounded(width / kNarrow);
  if (ratio > kWide) width = rounded(height * kWide);
  return {(size.width - width) / 2, (size.height - height) / 2, width, height};
}

/// As RandomHorizontalFlip: torch.rand(1) < 0.5.
template <class Words>
bool flip(Words& words) {
  return uniform(words, 0.0F, 1.0F) < 0.5F;
}

/// As ColorJitter: the order of the four changes, then an amount for each that has a range.
template <class Words>
std::vector<PictureOp> color_jitter(Words& words, const ColorJitter& jitter) {
  std::array<int, 4> order;
  std::iota(order.begin(), order.end(), 0);
  for (int i = 0; i < 3; ++i)
    std::swap(order[static_cast<std::size_t>(i)], order[static_cast<std::size_t>(i + below(words, 4 - i))]);
  const std::array kinds = {PictureOpKind::brightness, PictureOpKind::contrast, PictureOpKind::color,
                            PictureOpKind::hue};
  const std::array ranges = {jitter.brightness, jitter.contrast, jitter.saturation, jitter.hue};
  std::array<std::optional<PictureOp>, 4> drawn;
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    if (ranges[i] == 0) continue;
    const bool hue = kinds[i] == PictureOpKind::hue;
    const double low = hue ? -ranges[i] : std::max(1 - ranges[i], 0.0), high = (hue ? 0 : 1) + ranges[i];
    drawn[i] = {kinds[i], uniform(words, static_cast<float>(low), static_cast<float>(high))};
  }
  std::vector<PictureOp> ops;
  for (const int i : order)
    if (const auto& op = drawn[static_cast<std::size_t>(i)]) ops.push_back(*op);
  return ops;
}

/// As RandAugment of torchvision's recipe: bilinear, magnitudes in 31 steps.
template <class Words>
std::vector<PictureOp> rand_augment(Words& words, const RandAugment& how, PictureSize size) {
  std::vector<PictureOp> ops;
  for (int i = 0; i < how.ops; ++i) {
    const PolicyRow row = rand_augment_row(below(words, kPolicyRows), size);
    const bool negative = row.is_signed && below(words, 2) == 1;
    ops.push_back(row.op(how.magnitude, negative));
  }
  return ops;
}

/// As TrivialAugmentWide: one change of any of 31 magnitudes.
template <class Words>
PictureOp trivial_augment(Words& words) {
  const PolicyRow row = trivial_augment_row(below(words, kPolicyRows));
  const int magnitude = row.has_magnitude ? below(words, kMagnitudes) : 0;
  const bool negative = row.is_signed && below(words, 2) == 1;
  return row.op(magnitude, negative);
}

/// As RandomErasing of that probability: a rectangle of 2 to 33 % of the area, 0.3 to 3.3 times as high as
/// wide; empty where nothing is erased.
template <class Words>
Region random_erasing(Words& words, PictureSize size, double probability) {
  if (!(uniform(words, 0.0F, 1.0F) < static_cast<float>(probability))) return {};
  const float low = std::log(0.3F), high = std::log(3.3F);
  const double area = static_cast<double>(size.height) * size.width;
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double target = area * uniform(words, 0.02F, 0.33F);
    const double ratio = std::exp(uniform(words, low, high));
    const int height = rounded(std::sqrt(target * ratio)), width = rounded(std::sqrt(target / ratio));
    if (height >= size.height || width >= size.width) continue;
    const int top = below(words, size.height - height + 1);
    const int left = below(words, size.width - width + 1);
    return {left, top, width, height};
  }
  return {};
}

}  // namespace dtrain::draws
