// Cuts images into 2 x 2 tiles of the output and takes them through the loops of winograd_loops.h, as many at
// a time as the caches hold.
#include "runtime/device/cpu/convolution/winograd.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "runtime/device/cpu/convolution/winograd_loops.h"
#include "runtime/device/cpu/features.h"

// OpenMP's, where a library brought its runtime along.
extern "C" __attribute__((weak)) int omp_get_max_threads();

namespace dtrain::cpu {
namespace {

constexpr std::int64_t kKernel = 3, kTile = 2, kWindow = 4;
constexpr std::int64_t kLeastExtent = 4;  ///< below, more than half of the tiles' work is thrown away
constexpr std::int64_t kChannelStep = 32;
/// Words between the rows of a transformed array beside the channels.
constexpr std::int64_t kPadding = 16;
/// And between its taps, which are read side by side.
constexpr std::int64_t kTapPadding = 5 * 16;
constexpr std::int64_t kTilesAtOnce = 4 * kProductRows;
/// Tiles whose weight gradients are added up in registers.
constexpr std::int64_t kTilesOfSums = 128;
/// Channels whose sums, and tiles, fit the second-level cache where all of them do not.
constexpr std::int64_t kSumRows = 64;

/// The tiles of a batch in the order image, row, column.
class Tiles {
 public:
  explicit Tiles(const View& images)
      : height_(images.shape[2]),
        width_(images.shape[3]),
        rows_((height_ + kTile - 1) / kTile),
        columns_((width_ + kTile - 1) / kTile),
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
      const std::int64_t top = place / columns_ * kTile - before, left = place % columns_ * kTile - before;
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
  std::int64_t height_, width_, rows_, columns_, count_;
};

constexpr std::int64_t round_up(std::int64_t value, std::int64_t step) noexcept {
  return (value + step - 1) / step * step;
}

std::int64_t tap_words(std::int64_t rows, std::int64_t words) noexcept {
  return kTaps * (rows * (words + kPadding) + kTapPadding);
}

TapWords take_taps(ScratchPieces& pieces, std::int64_t rows, std::int64_t words) {
  return {pieces.take(tap_words(rows, words)), rows * (words + kPadding) + kTapPadding, words + kPadding};
}

float* take_zeros(ScratchPieces& pieces, std::int64_t floats) {
  float* zeros = pieces.take(floats);
  std::memset(zeros, 0, static_cast<std::size_t>(floats) * sizeof(float));
  return zeros;
}

/// What a weight's gradient is a product of, transformed tile by tile.
class AcrossTiles {
 public:
  AcrossTiles(const WinogradLoops& loops, const View& input, const View& grad_output)
      : loops_(loops), input_(input), grad_output_(grad_output), tiles_(input) {}

  std::int64_t count() const noexcept { return tiles_.count(); }

  /// The tiles of one sum from `first` on, into the first rows of v and z; returns how many, filled up to
  /// whole words with zeros. `bias_sums` receives the gradients' sums by channel.
  std::int64_t transform(std::int64_t first, const void* zeros, const TapWords& v, const TapWords& z,
                         float* bias_sums) const {
    const std::int64_t channels = input_.shape[1], outputs = grad_output_.shape[1];
    const std::int64_t count = round_up(std::min(kTilesOfSums, tiles_.count() - first), loops_.pack);
    std::vector<const void*> pixels;
    tiles_.pixels(input_, first, count, kWindow, 1, zeros, pixels);
    loops_.input_across(count, channels, pixels.data(), v);
    tiles_.pixels(grad_output_, first, count, kTile, 0, zeros, pixels);
    std::memset(bias_sums, 0, static_cast<std::size_t>(outputs) * sizeof(float));
    loops_.gradient_across(count, outputs, pixels.data(), z, bias_sums);
    return count;
  }

 private:
  const WinogradLoops& loops_;
  const View &input_, &grad_output_;
  const Tiles tiles_;
};

/// A piece of a weight's gradient while it is added up: `rows` channels, `columns` outputs.
class FilterGradient {
 public:
  FilterGradient(const WinogradLoops& loops, const TapWords& sums, std::int64_t rows, std::int64_t columns,
                 const View& grad_weight)
      : loops_(loops), sums_(sums), rows_(rows), columns_(columns), grad_weight_(grad_weight) {}

  void clear_sums() const noexcept {
    std::memset(sums_.data, 0, static_cast<std::size_t>(tap_words(rows_, columns_)) * sizeof(float));
  }
  void add(const TapWords& v, const TapWords& z, std::int64_t depth) const {
    for (std::int64_t tap = 0; tap < kTaps; ++tap) {
      loops_.add_product(rows_, depth, columns_, v.at(tap, 0), v.pitch, z.at(tap, 0), z.pitch,
                         sums_.at(tap, 0), sums_.pitch);
    }
  }
  /// The whole gradient, piece by piece.
  void add_and_write_pieces(const TapWords& v, const TapWords& z, std::int64_t depth) const {
    for (std::int64_t channel = 0; channel < grad_weight_.shape[1]; channel += rows_) {
      for (std::int64_t output = 0; output < grad_weight_.shape[0]; output += columns_) {
        clear_sums();
        add(v.right_of(channel), z.right_of(output), depth);
        write(channel, output);
      }
    }
  }
  /// Where the piece begins: its first channel and output.
  void write(std::int64_t channel, std::int64_t output) const {
    constexpr std::int64_t kCells = kKernel * kKernel;
    const std::int64_t channels = grad_weight_.shape[1];
    loops_.filter_gradient({columns_, channels * kCells, rows_, kCells, false}, sums_,
                           grad_weight_.as<float>() + (output * channels + channel) * kCells);
  }

 private:
  const WinogradLoops& loops_;
  const TapWords sums_;
  const std::int64_t rows_, columns_;
  const View& grad_weight_;
};

/// output = input convolved with the filter of `order`; both directions of a layer are one of these.
void convolve(const View& input, const FilterOrder& order, const View& weight, const View& bias,
              const View& output, Scratch& scratch) {
  const WinogradLoops& loops = *winograd_loops(input.dtype);
  const std::int64_t depth = order.depth / loops.pack, filter_words = kTaps * order.lanes * depth;
  const std::int64_t tap_floats = tap_words(kTilesAtOnce, depth) + tap_words(kTilesAtOnce, order.lanes);
  ScratchPieces pieces(scratch, filter_words + tap_floats + order.depth, 4);
  float* filter = pieces.take(filter_words);
  const TapWords v = take_taps(pieces, kTilesAtOnce, depth), m = take_taps(pieces, kTilesAtOnce, order.lanes);
  const void* zeros = take_zeros(pieces, order.depth);
  loops.filter(order, weight.data, weight.dtype, filter);

  const Tiles tiles(output);
  std::vector<const void*> from;
  std::vector<void*> to;
  for (std::int64_t first = 0; first < tiles.count(); first += kTilesAtOnce) {
    const std::int64_t count = std::min(kTilesAtOnce, tiles.count() - first);
    const std::int64_t rows = round_up(count, kProductRows);
    tiles.pixels(input, first, rows, kWindow, 1, zeros, from);
    loops.input(rows, order.depth, from.data(), v);
    for (std::int64_t tap = 0; tap < kTaps; ++tap) {
      loops.product(rows, depth, order.lanes, v.at(tap, 0), v.pitch, filter + tap * order.lanes * depth,
                    m.at(tap, 0), m.pitch);
    }
    tiles.pixels(output, first, count, kTile, 0, static_cast<void*>(nullptr), to);
    loops.output(count, order.lanes, m, bias.as<const float>(), to.data());
  }
}

}  // namespace

const WinogradLoops* winograd_loops(DType dtype) noexcept {
  if (dtype == DType::f32 && has_avx512()) return avx512::kWinogradF32;
  // A matrix unit does more than nine products in the time of these four.
  if (dtype == DType::bf16 && has_avx512_bf16() && !has_amx_bf16()) return avx512::kWinogradBf16;
  return nullptr;
}

bool winograd_can(const Conv2dGeometry& geometry, const View& input, const View& weight, const View& output) {
  return geometry == Conv2dGeometry{.pad_h = 1, .pad_w = 1} && weight.shape[2] == kKernel &&
         weight.shape[3] == kKernel && weight.shape[0] % kChannelStep == 0 &&
         weight.shape[1] % kChannelStep == 0 && input.shape[2] >= kLeastExtent &&
         input.shape[3] >= kLeastExtent && weight.is_contiguous() && input.is_channels_last() &&
         output.is_channels_last() && winograd_loops(input.dtype) != nullptr;
}

bool winograd_pays() noexcept { return omp_get_max_threads == nullptr || omp_get_max_threads() == 1; }

void winograd_forward(const View& input, const View& weight, const View& bias, const View& output,
                      Scratch& scratch) {
  const std::int64_t outputs = weight.shape[0], channels = weight.shape[1], cells = kKernel * kKernel;
  convolve(input, {outputs, channels * cells, channels, cells, false}, weight, bias, output, scratch);
}

void winograd_backward_input(const View& grad_output, const View& weight, const View& grad_input,
                             Scratch& scratch) {
  const std::int64_t outputs = weight.shape[0], channels = weight.shape[1], cells = kKernel * kKernel;
  convolve(grad_output, {channels, cells, outputs, channels * cells, true}, weight, View{}, grad_input,
           scratch);
}

void winograd_backward_weight(const View& input, const View& grad_output, const View& grad_weight,
                              const View& grad_bias, Scratch& scratch) {
  const WinogradLoops& loops = *winograd_loops(input.dtype);
  const std::int64_t outputs = grad_weight.shape[0], channels = grad_weight.shape[1];
  const AcrossTiles across(loops, input, grad_output);
  const std::int64_t tiles = across.count(), rows_of_all = round_up(tiles, loops.pack) / loops.pack;
  // Of the tiles and the sums, the larger is gone through by pieces that stay in the caches.
  const bool few_tiles = rows_of_all * (channels + outputs) <= channels * outputs;
  const std::int64_t rows = few_tiles ? rows_of_all : kTilesOfSums / loops.pack;
  const std::int64_t sum_rows = few_tiles ? channels % kSumRows == 0 ? kSumRows : kChannelStep : channels;
  const std::int64_t sum_columns = few_tiles ? kProductWidth : outputs;
  ScratchPieces pieces(scratch,
                       tap_words(rows, channels) + tap_words(rows, outputs) +
                           tap_words(sum_rows, sum_columns) + std::max(channels, outputs) + outputs,
                       5);
  const TapWords v = take_taps(pieces, rows, channels), z = take_taps(pieces, rows, outputs);
  const TapWords sums = take_taps(pieces, sum_rows, sum_columns);
  const void* zeros = take_zeros(pieces, std::max(channels, outputs));
  float* bias_sums = pieces.take(outputs);
  std::vector<double> bias_totals(static_cast<std::size_t>(outputs), 0.0);

  const FilterGradient gradient(loops, sums, sum_rows, sum_columns, grad_weight);
  if (!few_tiles) gradient.clear_sums();
  for (std::int64_t first = 0; first < tiles; first += kTilesOfSums) {
    const std::int64_t row = few_tiles ? first / loops.pack : 0;
    const std::int64_t count = across.transform(first, zeros, v.below(row), z.below(row), bias_sums);
    for (std::int64_t o = 0; o < outputs; ++o) bias_totals[static_cast<std::size_t>(o)] += bias_sums[o];
    if (!few_tiles) gradient.add(v, z, count / loops.pack);
  }
  if (few_tiles) {
    gradient.add_and_write_pieces(v, z, rows);
  } else {
    gradient.write(0, 0);
  }
  for (std::int64_t o = 0; grad_bias.data != nullptr && o < outputs; ++o) {
    grad_bias.as<float>()[o] = static_cast<float>(bias_totals[static_cast<std::size_t>(o)]);
  }
}

}  // namespace dtrain::cpu
