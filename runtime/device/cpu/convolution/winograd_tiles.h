// What both halves of winograd.h build on: the tiles of a batch, and arrays of transformed tiles.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "runtime/device/cpu/convolution/winograd_loops.h"
#include "runtime/device/cpu/scratch.h"
#include "runtime/device/view.h"

namespace dtrain::cpu {

inline constexpr std::int64_t kFilterSide = 3, kFilterCells = kFilterSide * kFilterSide;
/// Channels and outputs come in multiples of this; so wide is a block of a product, too.
inline constexpr std::int64_t kChannelStep = 32;

constexpr std::int64_t divide_up(std::int64_t value, std::int64_t by) noexcept {
  return (value + by - 1) / by;
}
constexpr std::int64_t fill_up(std::int64_t value, std::int64_t step) noexcept {
  return divide_up(value, step) * step;
}

/// The tiles of a batch in the order image, row, column.
class Tiles {
 public:
  Tiles(std::int64_t tile, const View& images)
      : tile_(tile),
        height_(images.shape[2]),
        width_(images.shape[3]),
        rows_(divide_up(height_, tile)),
        columns_(divide_up(width_, tile)),
        count_(images.shape[0] * rows_ * columns_) {}

  std::int64_t count() const noexcept { return count_; }

  /// Addresses of the `window` x `window` pixels that begin `before` pixels above and left of each tile's
  /// corner; `outside` for those that no image has. Tiles from `count()` on have nothing but those.
  template <class Pointer>
  void pixels(const View& images, std::int64_t first, std::int64_t tiles, std::int64_t window,
              std::int64_t before, Pointer outside, std::vector<Pointer>& to) const {
    const auto pixel_bytes = images.shape[1] * static_cast<std::int64_t>(size_of(images.dtype));
    auto* const data = images.as<std::byte>();
    to.assign(static_cast<std::size_t>(tiles * window * window), outside);
    Pointer* next = to.data();
    for (std::int64_t t = first; t < std::min(first + tiles, count_); ++t) {
      const std::int64_t n = t / (rows_ * columns_), place = t % (rows_ * columns_);
      const std::int64_t top = place / columns_ * tile_ - before, left = place % columns_ * tile_ - before;
      for (std::int64_t h = top; h < top + window; ++h, next += window) {
        if (h < 0 || h >= height_) continue;
        std::byte* const row = data + (n * height_ + h) * width_ * pixel_bytes;
        for (std::int64_t w = std::max<std::int64_t>(left, 0); w < std::min(left + window, width_); ++w) {
          next[w - left] = row + w * pixel_bytes;
        }
      }
    }
  }

 private:
  std::int64_t tile_, height_, width_, rows_, columns_, count_;
};

/// Arrays [tap][row][word] in scratch memory, for the loops of one size of tile.
class TapArrays {
 public:
  /// Words between taps, which are written side by side: without them their lines would meet in one set of
  /// the caches.
  static constexpr std::int64_t kTapPadding = 5 * 16;

  explicit TapArrays(const WinogradLoops& loops) : taps_(loops.taps()) {}

  std::int64_t floats(std::int64_t rows, std::int64_t words) const noexcept {
    return taps_ * tap_pitch(rows, words);
  }
  TapWords take(ScratchPieces& pieces, std::int64_t rows, std::int64_t words) const {
    return {pieces.take(floats(rows, words)), tap_pitch(rows, words), words + kPadding};
  }

 private:
  static constexpr std::int64_t kPadding = 16;  ///< words between rows beside the channels
  static constexpr std::int64_t tap_pitch(std::int64_t rows, std::int64_t words) noexcept {
    return rows * (words + kPadding) + kTapPadding;
  }

  std::int64_t taps_;
};

inline float* take_zeros(ScratchPieces& pieces, std::int64_t floats) {
  float* zeros = pieces.take(floats);
  std::memset(zeros, 0, static_cast<std::size_t>(floats) * sizeof(float));
  return zeros;
}

/// Roughly what a product of one tile and some channels by some outputs takes, in all taps.
inline double tile_ns(const WinogradLoops& loops, std::int64_t channels, std::int64_t outputs) {
  constexpr double kProductsANs = 48;
  return static_cast<double>(loops.taps() * channels * outputs) /
         (kProductsANs * static_cast<double>(loops.pack));
}

/// `images` from channel `channel` on; its shape still says how far pixels are apart.
inline View from_channel(View images, std::int64_t channel) {
  images.data = images.as<std::byte>() + channel * static_cast<std::int64_t>(size_of(images.dtype));
  return images;
}

/// The loops for gradients of convolutions of `images`: of large tiles where those compute fewer products.
inline const WinogradLoops& gradient_loops(const View& images) {
  const auto products = [&](const WinogradLoops& loops) {
    return divide_up(images.shape[2], loops.tile) * divide_up(images.shape[3], loops.tile) * loops.taps();
  };
  const WinogradLoops &small = *winograd_loops(images.dtype, kSmallTile), *const large = winograd_loops(
                                                                              images.dtype, kLargeTile);
  return large != nullptr && products(*large) < products(small) ? *large : small;
}

}  // namespace dtrain::cpu
