// Convolution (stride 1, no padding), relu and 2x2 pooling for groups of 16 images, one image in each lane of
// a 512-bit register, or of as many narrower ones as that takes. No channel count wastes lanes, which is
// where small networks lose a fifth of the machine; f32 only. Everything else takes the general path of
// fused_conv.cc.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/device/cpu/workers/workers.h"
#include "runtime/device/kernels.h"

namespace dtrain::cpu {

inline constexpr std::int64_t kLanes = 16;

/// Extents of one convolution block: what pooling reads, not what the convolution could give.
struct LaneConv {
  std::int64_t channels = 0, height = 0, width = 0;  ///< of the input that is used
  std::int64_t kernel_h = 0, kernel_w = 0;
  std::int64_t outputs = 0, pooled_h = 0, pooled_w = 0;
  PoolKind kind = PoolKind::avg;

  std::int64_t out_h() const noexcept { return 2 * pooled_h; }
  std::int64_t out_w() const noexcept { return 2 * pooled_w; }
  std::int64_t taps() const noexcept { return kernel_h * kernel_w * channels; }
};

/// Register tiles; packed arrays are padded to them with zeros.
inline constexpr std::int64_t kTapTile = 4, kOutputTile = 5;
/// Output channels (forward) or input channels (backward) computed at once: the one that pads least.
std::int64_t channel_tile(std::int64_t channels) noexcept;
constexpr std::int64_t round_up(std::int64_t value, std::int64_t step) noexcept {
  return (value + step - 1) / step * step;
}

/// Pointers are to arrays in lanes: [h][w][channel][16]. Sizes in floats are those of the functions below.
struct LaneLoops {
  /// Transposes `count` consecutive floats of 16 images, `pitch` floats apart, to [count][16], and back.
  void (*to_lanes)(std::int64_t count, const float* from, std::int64_t pitch, float* to);
  void (*from_lanes)(std::int64_t count, const float* from, float* to, std::int64_t pitch);
  /// weight [tile][kh][kw][c][T], bias [tile][T] → pooled [ph][pw][outputs][16], mask the same in bytes or
  /// null.
  void (*forward)(const LaneConv& conv, const float* x, const float* weight, const float* bias, float* pooled,
                  std::uint8_t* mask);
  /// grad_pooled [ph][pw][outputs][16] → dy [oh][ow][outputs padded][16]; adds each output's sum to bias_sums
  /// [outputs][16].
  void (*unpool)(const LaneConv& conv, const float* grad_pooled, const std::uint8_t* mask, float* dy,
                 float* bias_sums);
  /// weight [tile][kh][kw reversed][outputs padded][T] → dx [h][w][channels][16].
  void (*backward_input)(const LaneConv& conv, const float* dy, const float* weight, float* dx);
  /// Adds to dw [output tile][tap tile][tap][output]; tap_offsets has one for each padded tap.
  void (*backward_weight)(const LaneConv& conv, const float* x, const float* dy,
                          const std::int64_t* tap_offsets, float* dw);
};

/// The loops this processor runs.
const LaneLoops& lane_loops() noexcept;

namespace baseline {
extern const LaneLoops kLaneLoops;
}
namespace avx2 {
extern const LaneLoops kLaneLoops;
}
namespace avx512 {
extern const LaneLoops kLaneLoops;
}

/// How many images, from the first on, the lanes take: a multiple of 16, 0 when they do not help. The same
/// for the forward and the backward call of one block. `mask` may have null data.
std::int64_t lane_images(const Conv2dGeometry& conv, const Pool2dGeometry& pool, const View& input,
                         const View& weight, const View& output);

/// What all workers read and the sums they leave, and each worker's own.
struct LaneScratch {
  Scratch shared;
  WorkerScratch own;
};

/// Arguments are those of Kernels, cut to lane_images(). The mask's bytes are [group][ph][pw][outputs][16].
/// The same bits for any number of threads.
void lane_forward(const View& input, const View& weight, const View& bias, PoolKind kind, const View& output,
                  std::uint8_t* mask, LaneScratch& scratch);
void lane_backward(const View& input, const View& weight, PoolKind kind, const View& grad_output,
                   const std::uint8_t* mask, const View& grad_input, const View& grad_weight,
                   const View& grad_bias, LaneScratch& scratch);

}  // namespace dtrain::cpu
