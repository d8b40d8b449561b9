// Packs weights for the loops of lane_conv.h, takes the images through them 16 at a time, and unpacks.
#include "runtime/device/cpu/convolution/lane_conv.h"

#include <cstring>
#include <span>
#include <vector>

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

/// Adds the sums over some images to the total and clears them for the next: what is added up in float32
/// stays short however large the batch is.
void move_to_total(float* sums, std::span<double> total) {
  for (std::size_t i = 0; i < total.size(); ++i) total[i] += sums[i];
  clear(sums, static_cast<std::int64_t>(total.size()));
}

void unpack_weight_gradient(const LaneConv& conv, const double* from, const View& grad_weight) {
  const std::int64_t taps = round_up(conv.taps(), kTapTile);
  for (std::int64_t o = 0; o < conv.outputs; ++o) {
    const double* tile = from + o / kOutputTile * taps * kOutputTile + o % kOutputTile;
    for (std::int64_t tap = 0; tap < conv.taps(); ++tap) {
      const std::int64_t c = tap % conv.channels, place = tap / conv.channels;
      const std::int64_t kh = place / conv.kernel_w, kw = place % conv.kernel_w;
      grad_weight.as<float>()[o * grad_weight.strides[0] + c * grad_weight.strides[1] +
                              kh * grad_weight.strides[2] + kw * grad_weight.strides[3]] =
          static_cast<float>(tile[tap * kOutputTile]);
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

}  // namespace

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
      !input.is_channels_last() || input.numel() == 0 || weight.numel() > kMostWeights ||
      lane_loops() == nullptr) {
    return 0;
  }
  const Floats floats(sizes_of(input, weight, pool.kind, output));
  if (2 * floats.x + floats.dy > kMostLaneFloats) return 0;
  return input.shape[0] / kLanes * kLanes;
}

void lane_forward(const View& input, const View& weight, const View& bias, PoolKind kind, const View& output,
                  std::uint8_t* mask, Scratch& scratch) {
  const LaneLoops& loops = *lane_loops();
  const LaneConv conv = sizes_of(input, weight, kind, output);
  const Floats floats(conv);
  const std::int64_t padded = round_up(conv.outputs, channel_tile(conv.outputs));
  ScratchPieces pieces(scratch, floats.x + floats.pooled + floats.packed_forward + padded, 4);
  float* x = pieces.take(floats.x);
  float* pooled = pieces.take(floats.pooled);
  float* packed = pieces.take(floats.packed_forward);
  float* shift = pieces.take(padded);
  pack_forward(conv, weight, packed);
  clear(shift, padded);
  for (std::int64_t o = 0; bias.data != nullptr && o < conv.outputs; ++o) {
    shift[o] = bias.as<const float>()[o * bias.strides[0]];
  }
  const View from = dense_images(input), to = dense_images(output);
  for (std::int64_t n = 0; n < input.shape[0]; n += kLanes) {
    images_to_lanes(loops, conv, from, n, x);
    loops.forward(conv, x, packed, shift, pooled, mask == nullptr ? nullptr : mask + n * to.strides[0]);
    loops.from_lanes(to.strides[0], pooled, to.as<float>() + n * to.strides[0], to.strides[0]);
  }
}

void lane_backward(const View& input, const View& weight, PoolKind kind, const View& grad_output,
                   const std::uint8_t* mask, const View& grad_input, const View& grad_weight,
                   const View& grad_bias, Scratch& scratch) {
  const LaneLoops& loops = *lane_loops();
  const LaneConv conv = sizes_of(input, weight, kind, grad_output);
  const Floats floats(conv);
  ScratchPieces pieces(
      scratch, 2 * floats.x + floats.pooled + floats.dy + floats.packed_backward + floats.dw + floats.sums,
      7);
  float* x = pieces.take(floats.x);
  float* dx = pieces.take(floats.x);
  float* grad = pieces.take(floats.pooled);
  float* dy = pieces.take(floats.dy);
  float* packed = pieces.take(floats.packed_backward);
  float* dw = pieces.take(floats.dw);
  float* sums = pieces.take(floats.sums);
  if (grad_input.data != nullptr) pack_backward(conv, weight, packed);
  clear(dw, floats.dw);
  clear(sums, floats.sums);
  clear(dy, floats.dy);  // the padding of its outputs stays zero
  std::vector<double> dw_total(static_cast<std::size_t>(floats.dw)),
      sums_total(static_cast<std::size_t>(floats.sums));
  const std::vector<std::int64_t> offsets = tap_offsets(conv);
  const View from = dense_images(input), above = dense_images(grad_output);
  for (std::int64_t n = 0; n < input.shape[0]; n += kLanes) {
    images_to_lanes(loops, conv, from, n, x);
    loops.to_lanes(above.strides[0], above.as<const float>() + n * above.strides[0], above.strides[0], grad);
    loops.unpool(conv, grad, mask + n * above.strides[0], dy, sums);
    loops.backward_weight(conv, x, dy, offsets.data(), dw);
    const std::int64_t done = n + kLanes;
    if (done % kFloatSumImages == 0 || done == input.shape[0]) move_to_total(dw, dw_total);
    move_to_total(sums, sums_total);
    if (grad_input.data == nullptr) continue;
    loops.backward_input(conv, dy, packed, dx);
    lanes_to_images(loops, conv, dx, n, dense_images(grad_input));
  }
  unpack_weight_gradient(conv, dw_total.data(), grad_weight);
  for (std::int64_t o = 0; grad_bias.data != nullptr && o < conv.outputs; ++o) {
    double total = 0;
    for (std::int64_t lane = 0; lane < kLanes; ++lane)
      total += sums_total[static_cast<std::size_t>(o * kLanes + lane)];
    grad_bias.as<float>()[o * grad_bias.strides[0]] = static_cast<float>(total);
  }
}

}  // namespace dtrain::cpu
