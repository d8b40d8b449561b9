// Convolutions and gradients of inputs by Winograd's algorithm: cuts images into tiles of the output and
// takes them through the loops of winograd_loops.h, as many at a time as the caches hold.
#include "runtime/device/cpu/convolution/winograd.h"

#include <algorithm>
#include <vector>

#include "runtime/device/cpu/convolution/winograd_tiles.h"
#include "runtime/device/cpu/features.h"

namespace dtrain::cpu {
namespace {

constexpr std::int64_t kLeastExtent = 4;  ///< below, more than half of the tiles' work is thrown away
/// Below so many groups of tiles there are few tiles, and many channels.
constexpr std::int64_t kFewGroups = 8;

/// Tiles that go through all channels together, whole rows of a product.
std::int64_t tiles_at_once(const WinogradLoops& loops) noexcept {
  return (loops.tile == kSmallTile ? 56 : 28) / loops.product_rows * loops.product_rows;
}

/// output = input convolved with the filter of `order`; both directions of a layer are one of these.
class Convolution {
 public:
  Convolution(const WinogradLoops& loops, const View& input, const FilterOrder& order, const View& weight,
              const View& bias, const View& output, WinogradScratch& scratch)
      : loops_(loops),
        arrays_(loops),
        input_(input),
        order_(order),
        weight_(weight),
        bias_(bias),
        output_(output),
        tiles_(loops.tile, output),
        scratch_(scratch),
        depth_(order.depth / loops.pack),
        at_once_(tiles_at_once(loops)),
        few_tiles_(tiles_.count() < kFewGroups * at_once_) {
    scratch.own.prepare();
  }

  void run() {
    const std::int64_t filter_words = few_tiles_ ? 0 : loops_.taps() * filter_pitch(order_.lanes);
    const std::int64_t all_rows = few_tiles_ ? fill_up(tiles_.count(), loops_.product_rows) : 0;
    ScratchPieces pieces(scratch_.shared, filter_words + arrays_.floats(all_rows, depth_) + order_.depth, 3);
    zeros_ = take_zeros(pieces, order_.depth);
    few_tiles_ ? run_by_lanes(arrays_.take(pieces, all_rows, depth_))
               : run_by_tiles(pieces.take(filter_words));
  }

 private:
  /// The whole filter first, which is small, then some tiles at a time.
  void run_by_tiles(float* filter) const {
    const std::int64_t tap_pitch = filter_pitch(order_.lanes);
    for_chunks(order_.lanes / kChannelStep, filter_ns(), [&](std::int64_t block, int) {
      transform_filter(block, filter + block * kChannelStep * depth_, tap_pitch);
    });
    const double group_ns = tile_ns(loops_, order_.depth, order_.lanes) * static_cast<double>(at_once_);
    for_chunks(divide_up(tiles_.count(), at_once_), group_ns, [&](std::int64_t group, int worker) {
      const std::int64_t first = group * at_once_, count = std::min(at_once_, tiles_.count() - first);
      ScratchPieces pieces(scratch_.own.of(worker),
                           arrays_.floats(at_once_, depth_) + arrays_.floats(at_once_, order_.lanes), 2);
      const TapWords v = arrays_.take(pieces, at_once_, depth_);
      transform(first, count, v);
      multiply(v, filter, tap_pitch, first, count, 0, order_.lanes,
               arrays_.take(pieces, at_once_, order_.lanes));
    });
  }

  /// All tiles first, then lane by lane, so that each part of the filter, which is large, is made, read and
  /// forgotten.
  void run_by_lanes(const TapWords& all) const {
    for_ranges(
        tiles_.count(), loops_.product_rows, static_cast<double>(order_.depth) * 4,
        [&](std::int64_t first, std::int64_t end) { transform(first, end - first, all.below(first)); });
    const std::int64_t tap_pitch = filter_pitch(kChannelStep);
    const double block_ns =
        tile_ns(loops_, order_.depth, kChannelStep) * static_cast<double>(tiles_.count()) + filter_ns();
    for_chunks(order_.lanes / kChannelStep, block_ns, [&](std::int64_t block, int worker) {
      ScratchPieces pieces(scratch_.own.of(worker),
                           loops_.taps() * tap_pitch + arrays_.floats(at_once_, kChannelStep), 2);
      float* const filter = pieces.take(loops_.taps() * tap_pitch);
      const TapWords m = arrays_.take(pieces, at_once_, kChannelStep);
      transform_filter(block, filter, tap_pitch);
      for (std::int64_t first = 0; first < tiles_.count(); first += at_once_) {
        multiply(all.below(first), filter, tap_pitch, first, std::min(at_once_, tiles_.count() - first),
                 block * kChannelStep, kChannelStep, m);
      }
    });
  }

  /// Words from tap to tap of a filter's `lanes`.
  std::int64_t filter_pitch(std::int64_t lanes) const { return lanes * depth_ + TapArrays::kTapPadding; }

  double filter_ns() const { return static_cast<double>(kChannelStep * order_.depth * loops_.taps()) / 8; }

  /// Lanes of a block in the order of products.
  void transform_filter(std::int64_t block, float* to, std::int64_t tap_pitch) const {
    FilterOrder lanes = order_;
    lanes.lanes = kChannelStep;
    const auto* from = weight_.as<const std::byte>() + block * kChannelStep * order_.lane_stride *
                                                           static_cast<std::int64_t>(size_of(weight_.dtype));
    loops_.filter(lanes, from, weight_.dtype, to, tap_pitch);
  }

  /// `count` tiles from `first` on, and as many of zeros as fill the rows of a product, to the first rows of
  /// v.
  void transform(std::int64_t first, std::int64_t count, const TapWords& v) const {
    const std::int64_t rows = fill_up(count, loops_.product_rows);
    std::vector<const void*> from;
    tiles_.pixels(input_, first, rows, loops_.window(), 1, zeros_, from);
    loops_.input(rows, order_.depth, from.data(), v);
  }

  /// `count` tiles from `first` on of `lanes` channels of the output from `lane` on, by way of m. `filter`
  /// has those lanes.
  void multiply(const TapWords& v, const float* filter, std::int64_t tap_pitch, std::int64_t first,
                std::int64_t count, std::int64_t lane, std::int64_t lanes, const TapWords& m) const {
    for (std::int64_t tap = 0; tap < loops_.taps(); ++tap) {
      loops_.product(fill_up(count, loops_.product_rows), depth_, lanes, v.at(tap, 0), v.pitch,
                     filter + tap * tap_pitch, m.at(tap, 0), m.pitch);
    }
    std::vector<void*> to;
    tiles_.pixels(from_channel(output_, lane), first, count, loops_.tile, 0, static_cast<void*>(nullptr), to);
    const auto* bias = bias_.as<const float>();
    loops_.output(count, lanes, m, bias == nullptr ? nullptr : bias + lane, to.data());
  }

  const WinogradLoops& loops_;
  const TapArrays arrays_;
  const View& input_;
  const FilterOrder order_;
  const View &weight_, &bias_, &output_;
  const Tiles tiles_;
  WinogradScratch& scratch_;
  const std::int64_t depth_;    ///< words
  const std::int64_t at_once_;  ///< tiles
  const bool few_tiles_;
  const void* zeros_ = nullptr;
};

const WinogradTable& winograd_table(DType dtype) noexcept {
  static const WinogradTable none;
  if (dtype == DType::f32) {
    if (has_avx512()) return avx512::kWinogradF32;
    return has_avx2() ? avx2::kWinogradF32 : baseline::kWinogradF32;
  }
  // Where pairs are slow, oneDNN's direct convolution is faster, by a matrix unit twice as fast.
  if (dtype == DType::bf16 && has_fast_bf16_pairs()) return avx512::kWinogradBf16;
  return none;
}

}  // namespace

const WinogradLoops* winograd_loops(DType dtype, std::int64_t tile) noexcept {
  const WinogradTable& table = winograd_table(dtype);
  return tile == kSmallTile ? table.small : table.large;
}

bool winograd_can(const Conv2dGeometry& geometry, const View& input, const View& weight, const View& output) {
  return geometry == Conv2dGeometry{.pad_h = 1, .pad_w = 1} && weight.shape[2] == kFilterSide &&
         weight.shape[3] == kFilterSide && weight.shape[0] % kChannelStep == 0 &&
         weight.shape[1] % kChannelStep == 0 && input.shape[2] >= kLeastExtent &&
         input.shape[3] >= kLeastExtent && weight.is_contiguous() && input.is_channels_last() &&
         output.is_channels_last() && winograd_loops(input.dtype, kSmallTile) != nullptr;
}

void winograd_forward(const View& input, const View& weight, const View& bias, const View& output,
                      WinogradScratch& scratch) {
  const std::int64_t outputs = weight.shape[0], channels = weight.shape[1];
  Convolution(*winograd_loops(input.dtype, kSmallTile), input,
              {outputs, channels * kFilterCells, channels, kFilterCells, false}, weight, bias, output,
              scratch)
      .run();
}

void winograd_backward_input(const View& grad_output, const View& weight, const View& grad_input,
                             WinogradScratch& scratch) {
  const std::int64_t outputs = weight.shape[0], channels = weight.shape[1];
  const View no_bias;
  Convolution(gradient_loops(grad_input), grad_output,
              {channels, kFilterCells, outputs, channels * kFilterCells, true}, weight, no_bias, grad_input,
              scratch)
      .run();
}

}  // namespace dtrain::cpu
