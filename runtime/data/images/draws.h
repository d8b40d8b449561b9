// The random numbers of torchvision's transforms, in its order and with its rounding, from any generator of
// 32-bit words (next32()): from Generator, which is PyTorch's, they are torchvision's own; from a
// KeyedGenerator they depend on seed, epoch and sample alone.
#pragma once

#include <cmath>
#include <cstdint>

#include "runtime/data/images/picture.h"

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

}  // namespace dtrain::draws
