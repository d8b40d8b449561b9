// Direct convolution: one thread (forward, input) or one block (weight) an output element, sums in double.
// Slow and always right: for float64, for shapes cuDNN refuses, for builds without cuDNN, and as its
// reference.
#include <cub/block/block_reduce.cuh>

#include "runtime/device/cuda/cuda_kernels.h"
#include "runtime/device/cuda/elementwise/layout.h"
#include "runtime/device/cuda/pool/windows.cuh"
#include "runtime/device/cuda/pool/windows.h"

namespace dtrain::cuda {
namespace {

template <class T>
__global__ void conv_kernel(Conv2dGeometry g, Image<const T> x, Image<const T> weight, const T* bias,
                            std::int64_t bias_step, bool relu, Image<T> y) {
  const std::int64_t channels = weight.extent[1], per_group = weight.extent[0] / g.groups;
  for (std::int64_t i = first_item(); i < count_of(y); i += item_step()) {
    const Place at = place_of(y, i);
    double sum = 0;
    for (std::int64_t kh = 0; kh < weight.extent[2]; ++kh) {
      const std::int64_t h = at.h * g.stride_h - g.pad_h + kh * g.dilation_h;
      if (h < 0 || h >= x.extent[2]) continue;
      for (std::int64_t kw = 0; kw < weight.extent[3]; ++kw) {
        const std::int64_t w = at.w * g.stride_w - g.pad_w + kw * g.dilation_w;
        if (w < 0 || w >= x.extent[3]) continue;
        for (std::int64_t c = 0; c < channels; ++c) {
          sum += static_cast<double>(load(x(at.n, at.c / per_group * channels + c, h, w))) *
                 static_cast<double>(load(weight(at.c, c, kh, kw)));
        }
      }
    }
    if (bias != nullptr) sum += static_cast<double>(load(bias[at.c * bias_step]));
    y(at.n, at.c, at.h, at.w) = cast<T>(relu && sum < 0 ? 0.0 : sum);
  }
}

template <class T>
__global__ void conv_input_kernel(Conv2dGeometry g, Image<const T> dy, Image<const T> weight, Image<T> dx) {
  const std::int64_t channels = weight.extent[1], per_group = weight.extent[0] / g.groups;
  for (std::int64_t i = first_item(); i < count_of(dx); i += item_step()) {
    const Place at = place_of(dx, i);
    const std::int64_t first = at.c / channels * per_group;
    double sum = 0;
    for (std::int64_t kh = 0; kh < weight.extent[2]; ++kh) {
      const std::int64_t top = at.h + g.pad_h - kh * g.dilation_h;
      if (top < 0 || top % g.stride_h != 0 || top / g.stride_h >= dy.extent[2]) continue;
      for (std::int64_t kw = 0; kw < weight.extent[3]; ++kw) {
        const std::int64_t left = at.w + g.pad_w - kw * g.dilation_w;
        if (left < 0 || left % g.stride_w != 0 || left / g.stride_w >= dy.extent[3]) continue;
        for (std::int64_t o = first; o < first + per_group; ++o) {
          sum += static_cast<double>(load(dy(at.n, o, top / g.stride_h, left / g.stride_w))) *
                 static_cast<double>(load(weight(o, at.c % channels, kh, kw)));
        }
      }
    }
    dx(at.n, at.c, at.h, at.w) = cast<T>(sum);
  }
}

template <class T>
__global__ void conv_weight_kernel(Conv2dGeometry g, Image<const T> x, Image<const T> dy, Image<T> dw) {
  using BlockReduce = cub::BlockReduce<double, kThreads>;
  __shared__ typename BlockReduce::TempStorage storage;
  const std::int64_t per_group = dw.extent[0] / g.groups;
  const std::int64_t places = dy.extent[0] * dy.extent[2] * dy.extent[3];
  for (std::int64_t i = blockIdx.x; i < count_of(dw); i += gridDim.x) {
    const Place at =
        place_of(dw, i);  // n: output channel, c: input channel in its group, h, w: in the kernel
    const std::int64_t channel = at.n / per_group * dw.extent[1] + at.c;
    double sum = 0;
    for (std::int64_t p = threadIdx.x; p < places; p += kThreads) {
      const std::int64_t ow = p % dy.extent[3], oh = p / dy.extent[3] % dy.extent[2];
      const std::int64_t n = p / dy.extent[3] / dy.extent[2];
      const std::int64_t h = oh * g.stride_h - g.pad_h + at.h * g.dilation_h;
      const std::int64_t w = ow * g.stride_w - g.pad_w + at.w * g.dilation_w;
      if (h < 0 || h >= x.extent[2] || w < 0 || w >= x.extent[3]) continue;
      sum += static_cast<double>(load(x(n, channel, h, w))) * static_cast<double>(load(dy(n, at.n, oh, ow)));
    }
    sum = BlockReduce(storage).Sum(sum);
    if (threadIdx.x == 0) dw(at.n, at.c, at.h, at.w) = cast<T>(sum);
    __syncthreads();
  }
}

template <class T>
__global__ void bias_kernel(Layout<2> layout, const T* bias, bool relu, T* out) {
  for (std::int64_t i = first_item(); i < layout.count; i += item_step()) {
    std::int64_t at[2];
    layout.locate(i, at);
    Compute<T> value = load(out[at[0]]);
    if (bias != nullptr) value += load(bias[at[1]]);
    out[at[0]] = cast<T>(relu && value < Compute<T>(0) ? Compute<T>(0) : value);
  }
}

}  // namespace

void direct_conv2d(const Context& context, const Conv2dGeometry& geometry, const View& input,
                   const View& weight, const View& bias, Activation activation, const View& output) {
  dispatch_floating("conv2d", output.dtype, [&](auto tag) {
    using T = decltype(tag);
    DTRAIN_LAUNCH("conv2d", context.stream, blocks_for(context, output.numel()), kThreads, conv_kernel<T>,
                  geometry, Image<const T>(input), Image<const T>(weight), bias.as<const T>(),
                  bias.data == nullptr ? 0 : bias.strides[0], activation == Activation::relu,
                  Image<T>(output));
  });
}

void direct_conv2d_backward_input(const Context& context, const Conv2dGeometry& geometry,
                                  const View& grad_output, const View& weight, const View& grad_input) {
  dispatch_floating("conv2d_backward_input", grad_input.dtype, [&](auto tag) {
    using T = decltype(tag);
    DTRAIN_LAUNCH("conv2d_backward_input", context.stream, blocks_for(context, grad_input.numel()), kThreads,
                  conv_input_kernel<T>, geometry, Image<const T>(grad_output), Image<const T>(weight),
                  Image<T>(grad_input));
  });
}

void direct_conv2d_backward_weight(const Context& context, const Conv2dGeometry& geometry, const View& input,
                                   const View& grad_output, const View& grad_weight) {
  dispatch_floating("conv2d_backward_weight", grad_weight.dtype, [&](auto tag) {
    using T = decltype(tag);
    const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(grad_weight.numel(), 1 << 20));
    DTRAIN_LAUNCH("conv2d_backward_weight", context.stream, blocks, kThreads, conv_weight_kernel<T>, geometry,
                  Image<const T>(input), Image<const T>(grad_output), Image<T>(grad_weight));
  });
}

void CudaKernels::add_bias(const View& out, int dim, const View& bias, Activation activation) {
  Dims steps = Dims::filled(out.rank(), 0);
  if (bias.data != nullptr) steps[dim] = bias.strides[0];
  const Layout<2> layout = make_layout<2>(out.shape, {out.strides, steps});
  if (layout.count == 0) return;
  dispatch_floating("add_bias", out.dtype, [&](auto tag) {
    using T = decltype(tag);
    DTRAIN_LAUNCH("add_bias", context_.stream, blocks_for(context_, layout.count), kThreads, bias_kernel<T>,
                  layout, bias.as<const T>(), activation == Activation::relu, out.as<T>());
  });
}

}  // namespace dtrain::cuda
