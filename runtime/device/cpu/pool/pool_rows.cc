#include "runtime/device/cpu/pool/pool_rows.h"

#include <algorithm>
#include <cstring>

#include "runtime/device/cpu/workers/workers.h"

namespace dtrain::cpu {
namespace {

/// Roughly what an element of the input takes.
constexpr double kElementNs = 0.3;

/// The part of the geometry that is the same for all rows.
PoolRow common_row(const Pool2dGeometry& g, const View& input, const View& output) {
  PoolRow row;
  row.channels = input.shape[1];
  row.in_width = input.shape[3];
  row.out_width = output.shape[3];
  row.kernel_w = g.kernel_w;
  row.stride_w = g.stride_w;
  row.pad_w = g.pad_w;
  row.share = g.kind == PoolKind::avg ? 1.0F / static_cast<float>(g.kernel_h * g.kernel_w) : 1.0F;
  return row;
}

/// Sets which rows of the window of output row `oh` are inside; returns the first of them in the input.
std::int64_t place_row(const Pool2dGeometry& g, std::int64_t height, std::int64_t oh, PoolRow& row) {
  const std::int64_t top = oh * g.stride_h - g.pad_h;
  row.first_row = std::max<std::int64_t>(0, -top);
  row.rows = std::min(g.kernel_h, height - top) - row.first_row;
  return top + row.first_row;
}

/// Whether every input element belongs to at most one window, and none hangs over the edge.
bool disjoint(const Pool2dGeometry& g) {
  return g.stride_h >= g.kernel_h && g.stride_w >= g.kernel_w && g.pad_h == 0 && g.pad_w == 0;
}

void clear(float* from, const float* to) {
  if (to > from) std::memset(from, 0, static_cast<std::size_t>(to - from) * sizeof(float));
}

}  // namespace

bool can_pool_rows(const View& input, const View& output, const View& mask) noexcept {
  return input.dtype == DType::f32 && input.is_channels_last() && output.is_channels_last() &&
         (mask.data == nullptr || (mask.dtype == DType::u8 && mask.is_channels_last()));
}

void pool_rows(PoolMode mode, const Pool2dGeometry& geometry, const View& input, const View& output,
               const View& mask) {
  const VectorLoops& loops = vector_loops();
  const PoolRow common = common_row(geometry, input, output);
  const std::int64_t height = input.shape[2], pitch = common.in_width * common.channels,
                     out_pitch = common.out_width * common.channels;
  const double image_ns = static_cast<double>(height * pitch) * kElementNs;
  for_chunks(input.shape[0], image_ns, [&](std::int64_t n, int) {
    PoolRow row = common;
    const float* image = input.as<const float>() + n * height * pitch;
    float* out = output.as<float>() + n * output.shape[2] * out_pitch;
    auto* places = mask.as<std::uint8_t>();
    if (places != nullptr) places += n * output.shape[2] * out_pitch;
    for (std::int64_t oh = 0; oh < output.shape[2]; ++oh, out += out_pitch) {
      const std::int64_t first = place_row(geometry, height, oh, row);
      loops.pool(mode, row, image + first * pitch, out, places);
      if (places != nullptr) places += out_pitch;
    }
  });
}

void pool_rows_backward(PoolMode mode, const Pool2dGeometry& geometry, const View& grad_output,
                        const View& mask, const View& grad_input) {
  const VectorLoops& loops = vector_loops();
  const PoolRow common = common_row(geometry, grad_input, grad_output);
  const std::int64_t height = grad_input.shape[2], pitch = common.in_width * common.channels,
                     out_pitch = common.out_width * common.channels;
  const bool add = !disjoint(geometry);
  const double image_ns = static_cast<double>(height * pitch) * kElementNs;
  for_chunks(grad_input.shape[0], image_ns, [&](std::int64_t n, int) {
    PoolRow row = common;
    const std::int64_t outputs_before = n * grad_output.shape[2] * out_pitch;
    const float* grad = grad_output.as<const float>() + outputs_before;
    const auto* places = mask.as<const std::uint8_t>();
    if (places != nullptr) places += outputs_before;
    float* const image = grad_input.as<float>() + n * height * pitch;
    if (add) clear(image, image + height * pitch);
    float* written = image;
    for (std::int64_t oh = 0; oh < grad_output.shape[2]; ++oh, grad += out_pitch) {
      const std::int64_t first = place_row(geometry, height, oh, row);
      float* to = image + first * pitch;
      if (!add) clear(written, to);
      loops.pool_backward(mode, add, row, grad, places, to);
      written = to + row.rows * pitch;
      if (places != nullptr) places += out_pitch;
    }
    if (!add) clear(written, image + height * pitch);
  });
}

}  // namespace dtrain::cpu
