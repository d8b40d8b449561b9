// Convolution, relu and pooling as one kernel. It works on a few images at a time, so that the convolution's
// output, several times larger than anything that is kept, never leaves the second-level cache; and it leaves
// out rows and columns of the convolution that pooling drops (a fifth of LeNet's second one). Images that
// lane_conv.h takes go there first.
#include <algorithm>

#include "runtime/device/cpu/cpu_kernels.h"
#include "runtime/device/cpu/dispatch.h"
#include "runtime/device/cpu/naive.h"
#include "runtime/device/cpu/pool/pool_rows.h"

namespace dtrain::cpu {
namespace {

/// Bytes of convolution output worked on at once: half of a common second-level cache.
constexpr std::int64_t kChunkBytes = 512 * 1024;

std::int64_t aligned(std::int64_t bytes) { return (bytes + 63) / 64 * 64; }

std::int64_t bytes_of(const Dims& shape, DType dtype) {
  return aligned(shape.product() * static_cast<std::int64_t>(size_of(dtype)));
}

/// The extents that matter along one dimension: outputs of the convolution that pooling reads, and inputs
/// those depend on. Padded convolutions are not cut: their right padding would change.
struct Extent {
  std::int64_t outputs, inputs;
};

Extent used_extent(std::int64_t in, std::int64_t kernel, std::int64_t stride, std::int64_t pad,
                   std::int64_t dilation, std::int64_t pooled, std::int64_t pool_kernel,
                   std::int64_t pool_stride) {
  if (pad != 0) return {window_outputs(in, kernel, stride, pad, dilation), in};
  const std::int64_t outputs = (pooled - 1) * pool_stride + pool_kernel;
  return {outputs, (outputs - 1) * stride + dilation * (kernel - 1) + 1};
}

/// Images a pass: as many as fit, evenly split when that costs less than half of them.
std::int64_t chunk_of(std::int64_t images, std::int64_t bytes_per_image) {
  const std::int64_t most = std::clamp<std::int64_t>(kChunkBytes / bytes_per_image, 1, images);
  for (std::int64_t chunk = most; chunk > most / 2; --chunk) {
    if (images % chunk == 0) return chunk;
  }
  return most;
}

View images_of(View view, std::int64_t first, std::int64_t count) {
  if (view.data == nullptr) return view;
  view.data = view.as<std::byte>() + first * view.strides[0] * static_cast<std::int64_t>(size_of(view.dtype));
  view.shape[0] = count;
  return view;
}

/// `view` from row `top` and column `left` on, with the given height and width.
View window_of(View view, std::int64_t top, std::int64_t left, std::int64_t height, std::int64_t width) {
  view.data = view.as<std::byte>() + (top * view.strides[2] + left * view.strides[3]) *
                                         static_cast<std::int64_t>(size_of(view.dtype));
  view.shape[2] = height;
  view.shape[3] = width;
  return view;
}

/// How one call is cut up, and where its scratch memory lies.
struct Work {
  Work(const Conv2dGeometry& conv, const Pool2dGeometry& pool, const View& input, const View& weight,
       const View& output)
      : images(input.shape[0]), dtype(input.dtype) {
    const Extent rows = used_extent(input.shape[2], weight.shape[2], conv.stride_h, conv.pad_h,
                                    conv.dilation_h, output.shape[2], pool.kernel_h, pool.stride_h);
    const Extent columns = used_extent(input.shape[3], weight.shape[3], conv.stride_w, conv.pad_w,
                                       conv.dilation_w, output.shape[3], pool.kernel_w, pool.stride_w);
    middle = {1, weight.shape[0], rows.outputs, columns.outputs};
    cut_input = {1, input.shape[1], rows.inputs, columns.inputs};
    cut = rows.inputs != input.shape[2] || columns.inputs != input.shape[3];
    chunk = chunk_of(images, std::max<std::int64_t>(bytes_of(middle, dtype), 1));
    middle_bytes = bytes_of({chunk, middle[1], middle[2], middle[3]}, dtype);
    input_bytes = cut ? bytes_of({chunk, cut_input[1], cut_input[2], cut_input[3]}, dtype) : 0;
    // A gradient of the weight or the bias may be wider than the weight.
    const DType widest = dtype == DType::bf16 ? DType::f32 : dtype;
    weight_bytes = bytes_of(weight.shape, widest);
    bias_bytes = bytes_of({weight.shape[0]}, widest);
  }

  std::size_t scratch_bytes() const {
    return static_cast<std::size_t>(middle_bytes + input_bytes + weight_bytes + bias_bytes);
  }
  /// The convolution's output (or its gradient) for `count` images.
  View middle_view(std::byte* scratch, std::int64_t count) const { return image(scratch, middle, count); }
  View cut_view(std::byte* scratch, std::int64_t count) const {
    return image(scratch + middle_bytes, cut_input, count);
  }
  /// Memory for one more gradient of the weight, and of the bias behind it.
  View partial(std::byte* scratch, const View& like, bool bias) const {
    return {scratch + middle_bytes + input_bytes + (bias ? weight_bytes : 0), like.dtype, like.shape,
            contiguous_strides(like.shape)};
  }

  std::int64_t images, chunk = 1;
  DType dtype;
  Dims middle, cut_input;
  bool cut = false;
  std::int64_t middle_bytes = 0, input_bytes = 0, weight_bytes = 0, bias_bytes = 0;

 private:
  View image(std::byte* data, Dims shape, std::int64_t count) const {
    shape[0] = count;
    return {data, dtype, shape, channels_last_strides(shape)};
  }
};

void relu_pool(const Pool2dGeometry& pool, const View& in, const View& out, const View& mask) {
  if (!can_pool_rows(in, out, mask)) return naive::relu_pool(pool, in, out, mask);
  const bool average = pool.kind == PoolKind::avg;
  const PoolMode kept = average ? PoolMode::avg_relu : PoolMode::max_relu;
  const PoolMode plain = average ? PoolMode::avg : PoolMode::max;
  pool_rows(mask.data == nullptr ? plain : kept, pool, in, out, mask);
}

void relu_pool_backward(const Pool2dGeometry& pool, const View& grad_out, const View& mask,
                        const View& grad_in) {
  if (!can_pool_rows(grad_in, grad_out, mask)) {
    return naive::relu_pool_backward(pool, grad_out, mask, grad_in);
  }
  const PoolMode mode = pool.kind == PoolKind::avg ? PoolMode::avg_relu : PoolMode::max_relu;
  pool_rows_backward(mode, pool, grad_out, mask, grad_in);
}

/// Images for lane_conv.h; its mask is laid out by image, so that any dense layout of the view will do.
std::int64_t lanes_take(const Conv2dGeometry& conv, const Pool2dGeometry& pool, const View& input,
                        const View& weight, const View& output, const View& mask) {
  const bool dense = mask.data == nullptr || mask.is_contiguous() || mask.is_channels_last();
  return dense ? lane_images(conv, pool, input, weight, output) : 0;
}

View channels_last_like(const View& view, Scratch& scratch) {
  const auto bytes = static_cast<std::size_t>(bytes_of(view.shape, view.dtype));
  return {scratch.at_least(bytes), view.dtype, view.shape, channels_last_strides(view.shape)};
}

}  // namespace

void CpuKernels::conv2d_relu_pool2d(const Conv2dGeometry& conv, const Pool2dGeometry& pool, const View& input,
                                    const View& weight, const View& bias, const View& output,
                                    const View& mask) {
  if (output.numel() == 0) return;
  const std::int64_t lanes = lanes_take(conv, pool, input, weight, output, mask);
  if (lanes > 0) {
    const View to = images_of(output, 0, lanes);
    const View staged = to.is_channels_last() ? to : channels_last_like(to, staging_);
    lane_forward(images_of(input, 0, lanes), weight, bias, pool.kind, staged, mask.as<std::uint8_t>(),
                 lane_scratch_);
    if (staged.data != to.data) copy(staged, to);
  }
  if (lanes == input.shape[0]) return;
  const Work work(conv, pool, input, weight, output);
  std::byte* scratch = fused_scratch_.at_least(work.scratch_bytes());
  for (std::int64_t first = lanes; first < work.images; first += work.chunk) {
    const std::int64_t count = std::min(work.chunk, work.images - first);
    View x = images_of(input, first, count);
    if (work.cut) {
      const View cut = work.cut_view(scratch, count);
      copy(window_of(x, 0, 0, cut.shape[2], cut.shape[3]), cut);
      x = cut;
    }
    const View y = work.middle_view(scratch, count);
    conv2d(conv, x, weight, bias, Activation::relu, y);
    relu_pool(pool, y, images_of(output, first, count), images_of(mask, first, count));
  }
}

void CpuKernels::conv2d_relu_pool2d_backward(const Conv2dGeometry& conv, const Pool2dGeometry& pool,
                                             const View& input, const View& weight, const View& grad_output,
                                             const View& mask, const View& grad_input,
                                             const View& grad_weight, const View& grad_bias) {
  if (grad_output.numel() == 0) {
    for (const View* gradient : {&grad_input, &grad_weight, &grad_bias}) {
      if (gradient->data != nullptr) fill(*gradient, 0);
    }
    return;
  }
  const std::int64_t lanes = lanes_take(conv, pool, input, weight, grad_output, mask);
  if (lanes > 0) {
    lanes_backward(images_of(input, 0, lanes), weight, pool.kind, images_of(grad_output, 0, lanes), mask,
                   images_of(grad_input, 0, lanes), grad_weight, grad_bias);
  }
  if (lanes == input.shape[0]) return;
  const Work work(conv, pool, input, weight, grad_output);
  std::byte* scratch = fused_scratch_.at_least(work.scratch_bytes());
  for (std::int64_t first = lanes; first < work.images; first += work.chunk) {
    const std::int64_t count = std::min(work.chunk, work.images - first);
    const View dy = work.middle_view(scratch, count);
    relu_pool_backward(pool, images_of(grad_output, first, count), images_of(mask, first, count), dy);

    const View whole = images_of(input, first, count);
    const View cut = work.cut ? work.cut_view(scratch, count) : whole;
    if (work.cut) copy(window_of(whole, 0, 0, cut.shape[2], cut.shape[3]), cut);
    const View dw = first == 0 ? grad_weight : work.partial(scratch, grad_weight, false);
    const View db =
        first == 0 || grad_bias.data == nullptr ? grad_bias : work.partial(scratch, grad_bias, true);
    conv2d_backward_weight(conv, cut, dy, dw, db);
    if (first != 0) {
      accumulate(dw, 1, grad_weight);
      if (db.data != nullptr) accumulate(db, 1, grad_bias);
    }

    if (grad_input.data == nullptr) continue;
    const View dx = images_of(grad_input, first, count);
    conv2d_backward_input(conv, dy, weight, work.cut ? cut : dx);
    if (!work.cut) continue;
    const std::int64_t height = cut.shape[2], width = cut.shape[3];
    copy(cut, window_of(dx, 0, 0, height, width));
    fill(window_of(dx, height, 0, dx.shape[2] - height, dx.shape[3]), 0);
    fill(window_of(dx, 0, width, height, dx.shape[3] - width), 0);
  }
}

void CpuKernels::lanes_backward(const View& input, const View& weight, PoolKind kind, const View& grad_output,
                                const View& mask, const View& grad_input, const View& grad_weight,
                                const View& grad_bias) {
  View above = grad_output, below = grad_input;
  if (!above.is_channels_last()) {
    above = channels_last_like(grad_output, staging_);
    copy(grad_output, above);
  }
  const bool stage_input = grad_input.data != nullptr && !grad_input.is_channels_last();
  if (stage_input) below = channels_last_like(grad_input, input_staging_);
  lane_backward(input, weight, kind, above, mask.as<const std::uint8_t>(), below, grad_weight, grad_bias,
                lane_scratch_);
  if (stage_input) copy(below, grad_input);
}

}  // namespace dtrain::cpu
