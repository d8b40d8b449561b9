// The inner loops of winograd.h, compiled once for each kind of element. A word is 32 bits: one f32, or two
// bf16 that are multiplied and added together.
#pragma once

#include <cstdint>

#include "runtime/base/dtype.h"

namespace dtrain::cpu {

inline constexpr std::int64_t kTaps = 16;          ///< of a transformed tile or filter: 4 x 4
inline constexpr std::int64_t kTilePixels = 16;    ///< of the input under one tile: 4 x 4
inline constexpr std::int64_t kOutputPixels = 4;   ///< of one tile of the output: 2 x 2
inline constexpr std::int64_t kProductRows = 14;   ///< rows of a product come in multiples of this
inline constexpr std::int64_t kProductWidth = 32;  ///< and its columns in multiples of this
inline constexpr std::int64_t kGradientRows = 8;   ///< the same for the rows of a sum of products

/// Words as [tap][row][pitch]; the pitch is padded so that rows do not meet in one set of the cache.
struct TapWords {
  float* data = nullptr;
  std::int64_t tap_pitch = 0, pitch = 0;

  float* at(std::int64_t tap, std::int64_t row) const noexcept {
    return data + tap * tap_pitch + row * pitch;
  }
  TapWords below(std::int64_t row) const noexcept { return {at(0, row), tap_pitch, pitch}; }
  TapWords right_of(std::int64_t word) const noexcept { return {data + word, tap_pitch, pitch}; }
};

/// One side of a filter: weight[lane · lane_stride + depth · depth_stride + 3 · kh + kw], lanes being the
/// columns of the product; `flipped` turns the 3 x 3 by half a turn.
struct FilterOrder {
  std::int64_t lanes = 0, lane_stride = 0, depth = 0, depth_stride = 0;
  bool flipped = false;
};

/// `pixels` are addresses of channels-last pixels: kTilePixels or kOutputPixels for each tile.
struct WinogradLoops {
  std::int64_t pack;  ///< elements a word

  /// V = Bᵀ d B as [tap][tile][channels / pack words].
  void (*input)(std::int64_t tiles, std::int64_t channels, const void* const* pixels, const TapWords& to);
  /// The same as [tap][tiles / pack][channels words]: a word holds neighbouring tiles.
  void (*input_across)(std::int64_t tiles, std::int64_t channels, const void* const* pixels,
                       const TapWords& to);
  /// Z = A g Aᵀ in that order; adds each channel's gradients to `sums`.
  void (*gradient_across)(std::int64_t tiles, std::int64_t channels, const void* const* pixels,
                          const TapWords& to, float* sums);
  /// Aᵀ m A + bias; a null pixel is not written. m is f32, bias may be null.
  void (*output)(std::int64_t tiles, std::int64_t channels, const TapWords& from, const float* bias,
                 void* const* pixels);
  /// U = G w Gᵀ as [tap][lanes / kProductWidth][depth / pack][kProductWidth words]; `weight` is f32 or bf16.
  /// Taps are `tap_pitch` words apart, for lanes that are a part of all.
  void (*filter)(const FilterOrder& order, const void* weight, DType dtype, float* to,
                 std::int64_t tap_pitch);
  /// weight[lane · lane_stride + depth · depth_stride + …] = Gᵀ p G of p [tap][depth][lanes].
  void (*filter_gradient)(const FilterOrder& order, const TapWords& from, float* weight);
  /// c [rows][width] = a [rows][depth words] · b, one tap of `filter`'s result.
  void (*product)(std::int64_t rows, std::int64_t depth, std::int64_t width, const float* a,
                  std::int64_t a_pitch, const float* b, float* c, std::int64_t c_pitch);
  /// c [rows][width] += aᵀ · b with a [depth][rows words], b [depth][width words].
  void (*add_product)(std::int64_t rows, std::int64_t depth, std::int64_t width, const float* a,
                      std::int64_t a_pitch, const float* b, std::int64_t b_pitch, float* c,
                      std::int64_t c_pitch);
};

/// The loops for elements of `dtype`, or null where this processor has none or has something faster.
const WinogradLoops* winograd_loops(DType dtype) noexcept;

namespace avx512 {
/// Null where this was not compiled for x86.
extern const WinogradLoops* const kWinogradF32;
extern const WinogradLoops* const kWinogradBf16;
}  // namespace avx512

}  // namespace dtrain::cpu
