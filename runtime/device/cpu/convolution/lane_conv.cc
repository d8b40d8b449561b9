// Packs weights for the loops of lane_conv.h, takes the images through them 16 at a time, and unpacks.
#include "runtime/device/cpu/convolution/lane_conv.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "runtime/device/cpu/features.h"
#include "runtime/device/cpu/loops/chunks.h"

namespace dtrain::cpu {
namespace {

/// Above this the packed weights leave the second-level cache, and a library that blocks for it is better.
constexpr std::int64_t kMostWeights = 64 * 1024;
/// One group's input, output gradient and input gradient together.
constexpr std::int64_t kMostLaneFloats = 1024 * 1024;
/// Images whose weight gradients are added up in float32 before they join the total.
constexpr std::int64_t kFloatSumImages = 2 * kLanes;

LaneConv sizes_of(const View& input, const View& weight, PoolKind kind, const View& output) {
  LaneConv conv;
  conv.channels = input.shape[1];
  conv.kernel_h = weight.shape[2];
  conv.kernel_w = weight.shape[3];
  conv.outputs = weight.shape[0];
  conv.pooled_h = output.shape[2];
  conv.pooled_w = output.shape[3];
  conv.height = conv.out_h() + conv.kernel_h - 1;
  conv.width = conv.out_w() + conv.kernel_w - 1;
  conv.kind = kind;
  return conv;
}

struct Floats {
  std::int64_t x, pooled, dy, packed_forward, packed_backward, dw, sums;
  explicit Floats(const LaneConv& c)
      : x(c.height * c.width * c.channels * kLanes),
        pooled(c.pooled_h * c.pooled_w * c.outputs * kLanes),
        dy(c.out_h() * c.out_w() * round_up(c.outputs, kOutputTile) * kLanes),
        packed_forward(round_up(c.outputs, channel_tile(c.outputs)) * c.taps()),
        packed_backward(round_up(c.channels, channel_tile(c.channels)) * c.kernel_h * c.kernel_w *
                        round_up(c.outputs, kOutputTile)),
        dw(round_up(c.outputs, kOutputTile) * round_up(c.taps(), kTapTile)),
        sums(c.outputs * kLanes) {}
};

void clear(float* data, std::int64_t count) {
  std::memset(data, 0, static_cast<std::size_t>(count) * sizeof(float));
}

float at(const View& weight, std::int64_t o, std::int64_t c, std::int64_t kh, std::int64_t kw) {
  return weight.as<const float>()[o * weight.strides[0] + c * weight.strides[1] + kh * weight.strides[2] +
                                  kw * weight.strides[3]];
}

/// [tile][kh][kw][c][T]
void pack_forward(const LaneConv& conv, const View& weight, float* to) {
  const std::int64_t tile = channel_tile(conv.outputs);
  for (std::int64_t first = 0; first < conv.outputs; first += tile) {
    for (std::int64_t kh = 0; kh < conv.kernel_h; ++kh) {
      for (std::int64_t kw = 0; kw < conv.kernel_w; ++kw) {
        for (std::int64_t c = 0; c < conv.channels; ++c) {
          for (std::int64_t o = first; o < first + tile; ++o) {
            *to++ = o < conv.outputs ? at(weight, o, c, kh, kw) : 0.0F;
          }
        }
      }
    }
  }
}

/// [tile][kh][kw reversed][outputs padded][T]
void pack_backward(const LaneConv& conv, const View& weight, float* to) {
  const std::int64_t tile = channel_tile(conv.channels), outputs = round_up(conv.outputs, kOutputTile);
  for (std::int64_t first = 0; first < conv.channels; first += tile) {
    for (std::int64_t kh = 0; kh < conv.kernel_h; ++kh) {
      for (std::int64_t kw = conv.kernel_w - 1; kw >= 0; --kw) {
        for (std::int64_t o = 0; o < outputs; ++o) {
          for (std::int64_t c = first; c < first + tile; ++c) {
            *to++ = o < conv.outputs && c < conv.channels ? at(weight, o, c, kh, kw) : 0.0F;
          }
        }
      }
    }
  }
}

/// What is added up in float32 stays short however large the batch is.
void add_to(std::span<double> total, const float* sums) {
  for (std::size_t i = 0; i < total.size(); ++i) total[i] += sums[i];
}

void unpack_weight_gradient(const LaneConv& conv, const double* from, const View& grad_weight) {
  const std::int64_t taps = round_up(conv.taps(), kTapTile);
  std::vector<std::int64_t> places(static_cast<std::size_t>(conv.taps()));  // of taps, in an output's weights
  for (std::int64_t tap = 0; tap < conv.taps(); ++tap) {
    const std::int64_t c = tap % conv.channels, place = tap / conv.channels;
    const std::int64_t kh = place / conv.kernel_w, kw = place % conv.kernel_w;
    places[static_cast<std::size_t>(tap)] =
        c * grad_weight.strides[1] + kh * grad_weight.strides[2] + kw * grad_weight.strides[3];
  }
  for (std::int64_t o = 0; o < conv.outputs; ++o) {
    const double* tile = from + o / kOutputTile * taps * kOutputTile + o % kOutputTile;
    float* const to = grad_weight.as<float>() + o * grad_weight.strides[0];
    for (const std::int64_t place : places) {
      to[place] = static_cast<float>(*tile);
      tile += kOutputTile;
    }
  }
}

/// Where each tap's input lies relative to its output's first, in floats; padding repeats the first.
std::vector<std::int64_t> tap_offsets(const LaneConv& conv) {
  std::vector<std::int64_t> offsets(static_cast<std::size_t>(round_up(conv.taps(), kTapTile)), 0);
  for (std::int64_t tap = 0; tap < conv.taps(); ++tap) {
    const std::int64_t c = tap % conv.channels, place = tap / conv.channels;
    const std::int64_t kh = place / conv.kernel_w, kw = place % conv.kernel_w;
    offsets[static_cast<std::size_t>(tap)] = ((kh * conv.width + kw) * conv.channels + c) * kLanes;
  }
  return offsets;
}

/// Transposes the used part of 16 channels-last images to lanes.
void images_to_lanes(const LaneLoops& loops, const LaneConv& conv, const View& input, std::int64_t first,
                     float* x) {
  const std::int64_t run = conv.width * conv.channels;
  const float* from = input.as<const float>() + first * input.strides[0];
  for (std::int64_t h = 0; h < conv.height; ++h) {
    loops.to_lanes(run, from + h * input.shape[3] * conv.channels, input.strides[0], x + h * run * kLanes);
  }
}

/// And back; rows and columns that were not used get zeros.
void lanes_to_images(const LaneLoops& loops, const LaneConv& conv, const float* dx, std::int64_t first,
                     const View& grad_input) {
  const std::int64_t run = conv.width * conv.channels, row = grad_input.shape[3] * conv.channels;
  float* to = grad_input.as<float>() + first * grad_input.strides[0];
  for (std::int64_t n = 0; n < kLanes; ++n) {
    float* image = to + n * grad_input.strides[0];
    for (std::int64_t h = 0; h < conv.height; ++h) clear(image + h * row + run, row - run);
    clear(image + conv.height * row, (grad_input.shape[2] - conv.height) * row);
  }
  for (std::int64_t h = 0; h < conv.height; ++h) {
    loops.from_lanes(run, dx + h * run * kLanes, to + h * row, grad_input.strides[0]);
  }
}

/// A dense channels-last array with the strides that its extents imply.
View dense_images(View view) {
  view.strides = channels_last_strides(view.shape);
  return view;
}

/// Roughly what the products of one group of images take, of forward or of one gradient.
double group_ns(const LaneConv& conv) {
  constexpr double kProductsANs = 48;
  return static_cast<double>(kLanes * conv.out_h() * conv.out_w() * conv.outputs * conv.taps()) /
         kProductsANs;
}

/// The gradients of one call. Each block of images leaves its sums, which are then joined in the order of
/// blocks.
class BackwardBlocks {
 public:
  BackwardBlocks(const View& input, const View& weight, PoolKind kind, const View& grad_output,
                 const std::uint8_t* mask, const View& grad_input, LaneScratch& scratch)
      : conv_(sizes_of(input, weight, kind, grad_output)),
        floats_(conv_),
        from_(dense_images(input)),
        above_(dense_images(grad_output)),
        below_(grad_input.data == nullptr ? grad_input : dense_images(grad_input)),
        mask_(mask),
        scratch_(scratch),
        offsets_(tap_offsets(conv_)),
        dw_total_(static_cast<std::size_t>(floats_.dw)),
        sums_total_(static_cast<std::size_t>(floats_.sums)) {
    scratch.own.prepare();
    ScratchPieces pieces(scratch.shared,
                         floats_.packed_backward + kBlocksAtOnce * (floats_.dw + kGroups * floats_.sums), 3);
    packed_ = pieces.take(floats_.packed_backward);
    dw_ = pieces.take(kBlocksAtOnce * floats_.dw);
    sums_ = pieces.take(kBlocksAtOnce * kGroups * floats_.sums);
    if (below_.data != nullptr) pack_backward(conv_, weight, packed_);
  }

  void run(const View& grad_weight, const View& grad_bias) {
    const double block_ns = kGroups * group_ns(conv_) * (below_.data == nullptr ? 1 : 2);
    const std::int64_t blocks = (from_.shape[0] + kFloatSumImages - 1) / kFloatSumImages;
    for (std::int64_t first = 0; first < blocks; first += kBlocksAtOnce) {
      const std::int64_t count = std::min(kBlocksAtOnce, blocks - first);
      for_chunks(count, block_ns, [&](std::int64_t block, int worker) {
        run_block(first + block, dw_ + block * floats_.dw, sums_ + block * kGroups * floats_.sums,
                  scratch_.own.of(worker));
      });
      join(count);
    }
    unpack_weight_gradient(conv_, dw_total_.data(), grad_weight);
    if (grad_bias.data != nullptr) write_bias(grad_bias);
  }

 private:
  static constexpr std::int64_t kGroups = kFloatSumImages / kLanes;
  static constexpr std::int64_t kBlocksAtOnce = 32;  ///< whose sums are kept until they are joined

  void run_block(std::int64_t block, float* dw, float* sums, Scratch& scratch) const {
    const LaneLoops& loops = lane_loops();
    ScratchPieces own(scratch, 2 * floats_.x + floats_.pooled + floats_.dy, 4);
    float* x = own.take(floats_.x);
    float* dx = own.take(floats_.x);
    float* grad = own.take(floats_.pooled);
    float* dy = own.take(floats_.dy);
    clear(dw, floats_.dw);
    clear(sums, kGroups * floats_.sums);
    if (conv_.outputs % kOutputTile != 0) clear(dy, floats_.dy);  // the padding of its outputs
    const std::int64_t begin = block * kFloatSumImages;
    const std::int64_t end = std::min(begin + kFloatSumImages, from_.shape[0]);
    for (std::int64_t n = begin; n < end; n += kLanes, sums += floats_.sums) {
      images_to_lanes(loops, conv_, from_, n, x);
      loops.to_lanes(above_.strides[0], above_.as<const float>() + n * above_.strides[0], above_.strides[0],
                     grad);
      loops.unpool(conv_, grad, mask_ + n * above_.strides[0], dy, sums);
      loops.backward_weight(conv_, x, dy, offsets_.data(), dw);
      if (below_.data == nullptr) continue;
      loops.backward_input(conv_, dy, packed_, dx);
      lanes_to_images(loops, conv_, dx, n, below_);
    }
  }

  /// Adds up the first `blocks`, in their order. A block without a second group left zeros for it, which
  /// change nothing.
  void join(std::int64_t blocks) {
    constexpr double kElementNs = 0.3;
    for_ranges(floats_.dw, kElementsOfChunk / 4, kElementNs * static_cast<double>(blocks),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t block = 0; block < blocks; ++block) {
                   add_to(std::span(dw_total_).subspan(static_cast<std::size_t>(begin),
                                                       static_cast<std::size_t>(end - begin)),
                          dw_ + block * floats_.dw + begin);
                 }
               });
    for (std::int64_t group = 0; group < blocks * kGroups; ++group)
      add_to(sums_total_, sums_ + group * floats_.sums);
  }

  void write_bias(const View& grad_bias) const {
    for (std::int64_t o = 0; o < conv_.outputs; ++o) {
      double total = 0;
      for (std::int64_t lane = 0; lane < kLanes; ++lane)
        total += sums_total_[static_cast<std::size_t>(o * kLanes + lane)];
      grad_bias.as<float>()[o * grad_bias.strides[0]] = static_cast<float>(total);
    }
  }

  const LaneConv conv_;
  const Floats floats_;
  const View from_, above_, below_;
  const std::uint8_t* const mask_;
  LaneScratch& scratch_;
  const std::vector<std::int64_t> offsets_;
  std::vector<double> dw_total_, sums_total_;
  float *packed_ = nullptr, *dw_ = nullptr, *sums_ = nullptr;
};

}  // namespace

const LaneLoops& lane_loops() noexcept {
  if (has_avx512()) return avx512::kLaneLoops;
  return has_avx2() ? avx2::kLaneLoops : baseline::kLaneLoops;
}

std::int64_t channel_tile(std::int64_t channels) noexcept {
  std::int64_t best = 8;
  for (const std::int64_t tile : {10, 12}) {
    if (round_up(channels, tile) <= round_up(channels, best)) best = tile;
  }
  return best;
}

std::int64_t lane_images(const Conv2dGeometry& conv, const Pool2dGeometry& pool, const View& input,
                         const View& weight, const View& output) {
  const Pool2dGeometry two_by_two{.kind = pool.kind};
  if (input.dtype != DType::f32 || !(conv == Conv2dGeometry{}) || !(pool == two_by_two) ||
      !input.is_channels_last() || input.numel() == 0 || weight.numel() > kMostWeights) {
    return 0;
  }
  const Floats floats(sizes_of(input, weight, pool.kind, output));
  if (2 * floats.x + floats.dy > kMostLaneFloats) return 0;
  return input.shape[0] / kLanes * kLanes;
}

void lane_forward(const View& input, const View& weight, const View& bias, PoolKind kind, const View& output,
                  std::uint8_t* mask, LaneScratch& scratch) {
  const LaneLoops& loops = lane_loops();
  const LaneConv conv = sizes_of(input, weight, kind, output);
  const Floats floats(conv);
  const std::int64_t padded = round_up(conv.outputs, channel_tile(conv.outputs));
  ScratchPieces pieces(scratch.shared, floats.packed_forward + padded, 2);
  float* packed = pieces.take(floats.packed_forward);
  float* shift = pieces.take(padded);
  pack_forward(conv, weight, packed);
  clear(shift, padded);
  for (std::int64_t o = 0; bias.data != nullptr && o < conv.outputs; ++o) {
    shift[o] = bias.as<const float>()[o * bias.strides[0]];
  }
  const View from = dense_images(input), to = dense_images(output);
  scratch.own.prepare();
  for_chunks(input.shape[0] / kLanes, group_ns(conv), [&](std::int64_t group, int worker) {
    const std::int64_t n = group * kLanes;
    ScratchPieces own(scratch.own.of(worker), floats.x + floats.pooled, 2);
    float* x = own.take(floats.x);
    float* pooled = own.take(floats.pooled);
    images_to_lanes(loops, conv, from, n, x);
    loops.forward(conv, x, packed, shift, pooled, mask == nullptr ? nullptr : mask + n * to.strides[0]);
    loops.from_lanes(to.strides[0], pooled, to.as<float>() + n * to.strides[0], to.strides[0]);
  });
}

void lane_backward(const View& input, const View& weight, PoolKind kind, const View& grad_output,
                   const std::uint8_t* mask, const View& grad_input, const View& grad_weight,
                   const View& grad_bias, LaneScratch& scratch) {
  BackwardBlocks(input, weight, kind, grad_output, mask, grad_input, scratch).run(grad_weight, grad_bias);
}

}  // namespace dtrain::cpu
