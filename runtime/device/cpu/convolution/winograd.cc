// Cuts images into 2 x 2 tiles of the output and takes them through the loops of winograd_loops.h, as many at
// a time as the caches hold.
#include "runtime/device/cpu/convolution/winograd.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "runtime/device/cpu/convolution/winograd_loops.h"
#include "runtime/device/cpu/features.h"

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
/// Below so many of those there are few tiles, and many channels.
constexpr std::int64_t kFewGroups = 8;
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

/// Roughly what a product of one tile and some channels by some outputs takes, in all taps.
double tile_ns(const WinogradLoops& loops, std::int64_t channels, std::int64_t outputs) {
  constexpr double kProductsANs = 48;
  return static_cast<double>(kTaps * channels * outputs) / (kProductsANs * static_cast<double>(loops.pack));
}

/// `images` from channel `channel` on; its shape still says how far pixels are apart.
View from_channel(View images, std::int64_t channel) {
  images.data = images.as<std::byte>() + channel * static_cast<std::int64_t>(size_of(images.dtype));
  return images;
}

/// What a weight's gradient is a product of, transformed tile by tile: some channels of the input, some
/// outputs.
class AcrossTiles {
 public:
  AcrossTiles(const WinogradLoops& loops, const View& input, std::int64_t channels, const View& grad_output,
              std::int64_t outputs)
      : loops_(loops),
        input_(input),
        grad_output_(grad_output),
        channels_(channels),
        outputs_(outputs),
        tiles_(input) {}

  std::int64_t count() const noexcept { return tiles_.count(); }

  /// The tiles of one sum from `first` on, into the first rows of v and z; returns how many, filled up to
  /// whole words with zeros. `bias_sums` receives the gradients' sums by output.
  std::int64_t transform(std::int64_t first, const void* zeros, const TapWords& v, const TapWords& z,
                         float* bias_sums) const {
    const std::int64_t count = round_up(std::min(kTilesOfSums, tiles_.count() - first), loops_.pack);
    std::vector<const void*> pixels;
    tiles_.pixels(input_, first, count, kWindow, 1, zeros, pixels);
    loops_.input_across(count, channels_, pixels.data(), v);
    tiles_.pixels(grad_output_, first, count, kTile, 0, zeros, pixels);
    std::memset(bias_sums, 0, static_cast<std::size_t>(outputs_) * sizeof(float));
    loops_.gradient_across(count, outputs_, pixels.data(), z, bias_sums);
    return count;
  }

 private:
  const WinogradLoops& loops_;
  const View input_, grad_output_;
  const std::int64_t channels_, outputs_;
  const Tiles tiles_;
};

/// A piece of a weight's gradient while it is added up: `rows` channels, `columns` outputs.
class FilterGradient {
 public:
  FilterGradient(const WinogradLoops& loops, const TapWords& sums, std::int64_t rows, std::int64_t columns,
                 const View& grad_weight)
      : loops_(loops), sums_(sums), rows_(rows), columns_(columns), grad_weight_(grad_weight) {
    std::memset(sums_.data, 0, static_cast<std::size_t>(tap_words(rows_, columns_)) * sizeof(float));
  }

  void add(const TapWords& v, const TapWords& z, std::int64_t depth) const {
    for (std::int64_t tap = 0; tap < kTaps; ++tap) {
      loops_.add_product(rows_, depth, columns_, v.at(tap, 0), v.pitch, z.at(tap, 0), z.pitch,
                         sums_.at(tap, 0), sums_.pitch);
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

/// A filter in the order of products, transformed by all workers.
void transform_filter(const WinogradLoops& loops, const FilterOrder& order, const View& weight, float* to) {
  const std::int64_t words = order.depth / loops.pack, tap_pitch = words * order.lanes;
  FilterOrder block = order;
  block.lanes = kProductWidth;
  const double block_ns = static_cast<double>(kProductWidth * order.depth) * 2;
  for_chunks(order.lanes / kProductWidth, block_ns, [&](std::int64_t i, int) {
    const std::int64_t lane = i * kProductWidth;
    const auto* from = weight.as<const std::byte>() +
                       lane * order.lane_stride * static_cast<std::int64_t>(size_of(weight.dtype));
    loops.filter(block, from, weight.dtype, to + lane * words, tap_pitch);
  });
}

/// output = input convolved with the filter of `order`; both directions of a layer are one of these.
class Convolution {
 public:
  Convolution(const View& input, const FilterOrder& order, const View& weight, const View& bias,
              const View& output, WinogradScratch& scratch)
      : loops_(*winograd_loops(input.dtype)),
        input_(input),
        order_(order),
        bias_(bias),
        output_(output),
        tiles_(output),
        scratch_(scratch),
        depth_(order.depth / loops_.pack),
        few_tiles_(tiles_.count() < kFewGroups * kTilesAtOnce) {
    const std::int64_t filter_words = kTaps * order.lanes * depth_;
    const std::int64_t all_rows = few_tiles_ ? round_up(tiles_.count(), kProductRows) : 0;
    ScratchPieces pieces(scratch.shared, filter_words + tap_words(all_rows, depth_) + order.depth, 3);
    filter_ = pieces.take(filter_words);
    all_ = take_taps(pieces, all_rows, depth_);
    zeros_ = take_zeros(pieces, order.depth);
    transform_filter(loops_, order, weight, filter_);
    scratch.own.prepare();
  }

  void run() const {
    if (few_tiles_) return run_by_lanes();
    const std::int64_t groups = (tiles_.count() + kTilesAtOnce - 1) / kTilesAtOnce;
    const double group_ns = tile_ns(loops_, order_.depth, order_.lanes) * static_cast<double>(kTilesAtOnce);
    for_chunks(groups, group_ns, [&](std::int64_t group, int worker) {
      const std::int64_t first = group * kTilesAtOnce, count = std::min(kTilesAtOnce, tiles_.count() - first);
      ScratchPieces pieces(scratch_.own.of(worker),
                           tap_words(kTilesAtOnce, depth_) + tap_words(kTilesAtOnce, order_.lanes), 2);
      const TapWords v = take_taps(pieces, kTilesAtOnce, depth_);
      transform(first, count, v);
      multiply(v, first, count, 0, order_.lanes, take_taps(pieces, kTilesAtOnce, order_.lanes));
    });
  }

 private:
  /// All tiles first, then lane by lane, so that each part of the filter, which is large, is read once.
  void run_by_lanes() const {
    const std::int64_t count = tiles_.count(), rows = round_up(count, kProductRows);
    for_ranges(
        count, kProductRows, static_cast<double>(order_.depth) * 4,
        [&](std::int64_t first, std::int64_t end) { transform(first, end - first, all_.below(first)); });
    const double block_ns = tile_ns(loops_, order_.depth, kProductWidth) * static_cast<double>(rows);
    for_chunks(order_.lanes / kProductWidth, block_ns, [&](std::int64_t block, int worker) {
      ScratchPieces pieces(scratch_.own.of(worker), tap_words(rows, kProductWidth), 1);
      multiply(all_, 0, count, block * kProductWidth, kProductWidth, take_taps(pieces, rows, kProductWidth));
    });
  }

  /// `count` tiles from `first` on, and as many of zeros as fill the rows of a product, to the first rows of
  /// v.
  void transform(std::int64_t first, std::int64_t count, const TapWords& v) const {
    const std::int64_t rows = round_up(count, kProductRows);
    std::vector<const void*> from;
    tiles_.pixels(input_, first, rows, kWindow, 1, zeros_, from);
    loops_.input(rows, order_.depth, from.data(), v);
  }

  /// `count` tiles from `first` on of `lanes` channels of the output from `lane` on, by way of m.
  void multiply(const TapWords& v, std::int64_t first, std::int64_t count, std::int64_t lane,
                std::int64_t lanes, const TapWords& m) const {
    for (std::int64_t tap = 0; tap < kTaps; ++tap) {
      loops_.product(round_up(count, kProductRows), depth_, lanes, v.at(tap, 0), v.pitch,
                     filter_ + (tap * order_.lanes + lane) * depth_, m.at(tap, 0), m.pitch);
    }
    std::vector<void*> to;
    tiles_.pixels(from_channel(output_, lane), first, count, kTile, 0, static_cast<void*>(nullptr), to);
    const auto* bias = bias_.as<const float>();
    loops_.output(count, lanes, m, bias == nullptr ? nullptr : bias + lane, to.data());
  }

  const WinogradLoops& loops_;
  const View& input_;
  const FilterOrder order_;
  const View &bias_, &output_;
  const Tiles tiles_;
  WinogradScratch& scratch_;
  const std::int64_t depth_;  ///< words
  const bool few_tiles_;
  float* filter_ = nullptr;
  TapWords all_;  ///< the input's tiles, where they are few
  const void* zeros_ = nullptr;
};

/// Gradients of the weight and the bias; every element is added up tile by tile, whoever does it.
class WeightGradient {
 public:
  WeightGradient(const View& input, const View& grad_output, const View& grad_weight, const View& grad_bias,
                 WinogradScratch& scratch)
      : loops_(*winograd_loops(input.dtype)),
        input_(input),
        grad_output_(grad_output),
        grad_weight_(grad_weight),
        grad_bias_(grad_bias),
        scratch_(scratch),
        channels_(input.shape[1]),
        outputs_(grad_output.shape[1]),
        tiles_(Tiles(input).count()) {
    scratch.own.prepare();
  }

  // Of the tiles and the sums, the larger is gone through by pieces that stay in the caches.
  void run() const {
    const std::int64_t rows = round_up(tiles_, loops_.pack) / loops_.pack;
    if (rows * (channels_ + outputs_) <= channels_ * outputs_) return run_by_pieces(rows);
    // Every block transforms its channels and outputs itself: as few blocks as there are workers.
    const std::int64_t workers = worker_count(), most = outputs_ / kChannelStep;
    const std::int64_t across = std::min(workers, most);
    const std::int64_t down = std::clamp<std::int64_t>(workers / across, 1, channels_ / kChannelStep);
    const std::int64_t width = round_up((outputs_ + across - 1) / across, kChannelStep);
    const std::int64_t height = round_up((channels_ + down - 1) / down, kChannelStep);
    const std::int64_t columns = (outputs_ + width - 1) / width, lines = (channels_ + height - 1) / height;
    const double block_ns = tile_ns(loops_, height, width) * static_cast<double>(tiles_);
    for_chunks(lines * columns, block_ns, [&](std::int64_t block, int worker) {
      const std::int64_t channel = block / columns * height, output = block % columns * width;
      add_block(channel, std::min(height, channels_ - channel), output, std::min(width, outputs_ - output),
                scratch_.own.of(worker));
    });
  }

 private:
  void add_block(std::int64_t channel, std::int64_t channels, std::int64_t output, std::int64_t outputs,
                 Scratch& scratch) const {
    const std::int64_t rows = kTilesOfSums / loops_.pack, most = std::max(channels, outputs);
    ScratchPieces pieces(
        scratch,
        tap_words(rows, channels) + tap_words(rows, outputs) + tap_words(channels, outputs) + most + outputs,
        5);
    const TapWords v = take_taps(pieces, rows, channels), z = take_taps(pieces, rows, outputs);
    const FilterGradient gradient(loops_, take_taps(pieces, channels, outputs), channels, outputs,
                                  grad_weight_);
    const void* zeros = take_zeros(pieces, most);
    float* bias_sums = pieces.take(outputs);
    const AcrossTiles across(loops_, from_channel(input_, channel), channels,
                             from_channel(grad_output_, output), outputs);
    std::vector<double> bias_totals(static_cast<std::size_t>(outputs), 0.0);
    for (std::int64_t first = 0; first < tiles_; first += kTilesOfSums) {
      gradient.add(v, z, across.transform(first, zeros, v, z, bias_sums) / loops_.pack);
      for (std::int64_t o = 0; o < outputs; ++o) bias_totals[static_cast<std::size_t>(o)] += bias_sums[o];
    }
    gradient.write(channel, output);
    if (channel == 0) write_bias(output, bias_totals);
  }

  /// All tiles first, of which there are few, then the sums piece by piece.
  void run_by_pieces(std::int64_t rows) const {
    const std::int64_t groups = (tiles_ + kTilesOfSums - 1) / kTilesOfSums,
                       most = std::max(channels_, outputs_);
    ScratchPieces pieces(
        scratch_.shared,
        tap_words(rows, channels_) + tap_words(rows, outputs_) + most + groups * round_up(outputs_, 16), 4);
    const TapWords v = take_taps(pieces, rows, channels_), z = take_taps(pieces, rows, outputs_);
    const void* zeros = take_zeros(pieces, most);
    float* bias_sums = pieces.take(groups * outputs_);
    const AcrossTiles across(loops_, input_, channels_, grad_output_, outputs_);
    for_chunks(groups, static_cast<double>(kTilesOfSums * most) * 4, [&](std::int64_t group, int) {
      const std::int64_t row = group * kTilesOfSums / loops_.pack;
      across.transform(group * kTilesOfSums, zeros, v.below(row), z.below(row), bias_sums + group * outputs_);
    });
    std::vector<double> bias_totals(static_cast<std::size_t>(outputs_), 0.0);
    for (std::int64_t i = 0; i < groups * outputs_; ++i)
      bias_totals[static_cast<std::size_t>(i % outputs_)] += bias_sums[i];
    write_bias(0, bias_totals);
    add_pieces(v, z, rows);
  }

  void add_pieces(const TapWords& v, const TapWords& z, std::int64_t rows) const {
    const std::int64_t height = channels_ % kSumRows == 0 ? kSumRows : kChannelStep;
    const std::int64_t columns = outputs_ / kProductWidth;
    const double piece_ns = tile_ns(loops_, height, kProductWidth) * static_cast<double>(tiles_);
    for_chunks(channels_ / height * columns, piece_ns, [&](std::int64_t piece, int worker) {
      const std::int64_t channel = piece / columns * height, output = piece % columns * kProductWidth;
      ScratchPieces own(scratch_.own.of(worker), tap_words(height, kProductWidth), 1);
      const FilterGradient gradient(loops_, take_taps(own, height, kProductWidth), height, kProductWidth,
                                    grad_weight_);
      gradient.add(v.right_of(channel), z.right_of(output), rows);
      gradient.write(channel, output);
    });
  }

  void write_bias(std::int64_t output, const std::vector<double>& totals) const {
    if (grad_bias_.data == nullptr) return;
    for (std::size_t o = 0; o < totals.size(); ++o)
      grad_bias_.as<float>()[output + static_cast<std::int64_t>(o)] = static_cast<float>(totals[o]);
  }

  const WinogradLoops& loops_;
  const View &input_, &grad_output_, &grad_weight_, &grad_bias_;
  WinogradScratch& scratch_;
  const std::int64_t channels_, outputs_, tiles_;
};

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

void winograd_forward(const View& input, const View& weight, const View& bias, const View& output,
                      WinogradScratch& scratch) {
  const std::int64_t outputs = weight.shape[0], channels = weight.shape[1], cells = kKernel * kKernel;
  Convolution(input, {outputs, channels * cells, channels, cells, false}, weight, bias, output, scratch)
      .run();
}

void winograd_backward_input(const View& grad_output, const View& weight, const View& grad_input,
                             WinogradScratch& scratch) {
  const std::int64_t outputs = weight.shape[0], channels = weight.shape[1], cells = kKernel * kKernel;
  const View no_bias;
  Convolution(grad_output, {channels, cells, outputs, channels * cells, true}, weight, no_bias, grad_input,
              scratch)
      .run();
}

void winograd_backward_weight(const View& input, const View& grad_output, const View& grad_weight,
                              const View& grad_bias, WinogradScratch& scratch) {
  WeightGradient(input, grad_output, grad_weight, grad_bias, scratch).run();
}

}  // namespace dtrain::cpu
