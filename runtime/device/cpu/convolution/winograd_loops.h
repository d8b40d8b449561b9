// The inner loops of winograd.h, compiled once for each kind of element, size of tile and length of vectors.
// A word is 32 bits: one f32, or two bf16 that are multiplied and added together.
#pragma once

#include <cstdint>

#include "runtime/base/dtype.h"

namespace dtrain::cpu {

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

/// `pixels` are addresses of channels-last pixels: window² or tile² for each tile.
struct WinogradLoops {
  std::int64_t pack;          ///< elements a word
  std::int64_t tile;          ///< rows and columns of the output under one tile
  std::int64_t product_rows;  ///< rows of a product come in multiples of this, its columns in multiples of 32
  std::int64_t gradient_rows;  ///< the same for the rows of a sum of products; divides 32

  std::int64_t window() const noexcept { return tile + 2; }           ///< rows and columns of the input
  std::int64_t taps() const noexcept { return window() * window(); }  ///< of a transformed tile or filter

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
  /// U = G w Gᵀ as product() takes it: [tap][block][depth / pack][words of a block of lanes], a block being
  /// some lanes that 32 is a multiple of. `weight` is f32 or bf16. Taps are `tap_pitch` words apart.
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

/// Sizes of tiles that there are.
inline constexpr std::int64_t kSmallTile = 2, kLargeTile = 4;

/// The loops for elements of `dtype`, or null where this processor has none or has something faster. bf16 has
/// small tiles only.
const WinogradLoops* winograd_loops(DType dtype, std::int64_t tile) noexcept;

/// The loops of one file: null where it was not compiled for this kind of processor.
struct WinogradTable {
  const WinogradLoops *small = nullptr, *large = nullptr;
};

namespace baseline {
extern const WinogradTable kWinogradF32;
}
namespace avx2 {
extern const WinogradTable kWinogradF32;
}
namespace avx512 {
extern const WinogradTable kWinogradF32;
extern const WinogradTable kWinogradBf16;
}  // namespace avx512

}  // namespace dtrain::cpu
