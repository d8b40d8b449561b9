// The convolutions of ops/convolutions.h, made of conv2d, its gradient, views and copies.
#include "runtime/autograd/ops/convolutions.h"

#include <string>

#include "runtime/autograd/autocast.h"
#include "runtime/autograd/functions/convolution_gradients.h"
#include "runtime/autograd/functions/elementwise.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/autograd/ops.h"
#include "runtime/autograd/ops/indexing.h"
#include "runtime/base/error.h"
#include "runtime/device/kernel_checks.h"
#include "runtime/tensor/tracking.h"

namespace dtrain {
namespace {

std::string text_of(const Tensor& tensor) { return tensor.defined() ? tensor.describe() : "none"; }

/// Which elements along a dimension belong to which window: window i has i·step, i·step + dilation, …
struct Windows {
  int dim = 0;
  std::int64_t count = 0, size = 0, step = 1, dilation = 1;

  /// The elements at place `k` of all windows.
  Tensor at_place(const Tensor& x, std::int64_t k) const {
    const std::int64_t first = k * dilation;
    return x.slice(dim, first, first + (count - 1) * step + 1, step);
  }
};

Tensor windows_of(const Tensor& x, const Windows& windows);

/// The adjoint of windows_of: [..., count, ..., size] → `shape`, elements that several windows see are added
/// up.
Tensor overlap_added(std::string_view name, const Tensor& parts, const Dims& shape, const Windows& windows) {
  Tensor result = Tensor::zeros(shape, parts.shared_device(), parts.dtype());
  {
    const NoGrad no_grad;
    for (std::int64_t k = 0; k < windows.size; ++k) {
      windows.at_place(result, k).add_in_place(parts.detach().select(-1, k));
    }
  }
  return record_linear(name, parts, result,
                       [windows](const Tensor& grad) { return windows_of(grad, windows); });
}

/// A view of x with one window a position of `dim`, its elements along a new last dimension.
Tensor windows_of(const Tensor& x, const Windows& windows) {
  Dims shape = x.shape(), strides = x.strides();
  const std::int64_t stride = strides[windows.dim];
  shape[windows.dim] = windows.count;
  strides[windows.dim] = stride * windows.step;
  shape.push_back(windows.size);
  strides.push_back(stride * windows.dilation);
  return record_linear("conv3d", x, x.alias(x.view().data, shape, strides),
                       [windows, before = x.shape()](const Tensor& grad) {
                         return overlap_added("conv3d backward", grad, before, windows);
                       });
}

void check_conv3d(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv3dGeometry& g) {
  bool fits = x.rank() == 5 && w.rank() == 5 && g.groups > 0 && g.stride_d > 0 && g.dilation_d > 0 &&
              g.pad_d >= 0 && x.size(1) == w.size(1) * g.groups &&
              (!bias.defined() || bias.shape() == Dims{w.size(0)});
  fits = fits && w.size(2) > 0 && x.size(2) + 2 * g.pad_d >= g.dilation_d * (w.size(2) - 1) + 1;
  if (fits) return;
  throw UsageError(
      "conv3d: expected x [N, C, D, H, W], w [O, C / groups, KD, KH, KW] that fits into it, bias [O] " +
      std::string("or none, and positive strides and dilations, got ") + x.describe() + ", " + w.describe() +
      ", " + text_of(bias) + " and groups " + std::to_string(g.groups));
}

std::int64_t transposed_extent(std::int64_t in, std::int64_t kernel, std::int64_t stride, std::int64_t pad,
                               std::int64_t dilation, std::int64_t output_padding) {
  return (in - 1) * stride - 2 * pad + dilation * (kernel - 1) + output_padding + 1;
}

/// x with zeros behind it, as large as the result of the convolution that sees `shape`. It is larger than x
/// where output padding makes room for another position: a stride of 1 with a dilation allows that.
Tensor as_wide_as(const Dims& shape, const Tensor& x, const Tensor& w, const Conv2dGeometry& g) {
  const std::int64_t h = window_outputs(shape[2], w.size(2), g.stride_h, g.pad_h, g.dilation_h);
  const std::int64_t v = window_outputs(shape[3], w.size(3), g.stride_w, g.pad_w, g.dilation_w);
  if (h == x.size(2) && v == x.size(3)) return x;
  return pad(x, {0, v - x.size(3), 0, h - x.size(2)});
}

bool chooses_size(std::int64_t output_padding, std::int64_t stride, std::int64_t dilation) {
  return output_padding >= 0 && (output_padding < stride || output_padding < dilation);
}

void check_conv_transpose2d(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv2dGeometry& g,
                            std::int64_t padding_h, std::int64_t padding_w) {
  check_floating("conv_transpose2d", x);
  check_same_kind("conv_transpose2d", x, w);
  const bool fits = x.rank() == 4 && w.rank() == 4 && x.size(1) == w.size(0) && g.groups > 0 &&
                    w.size(0) % g.groups == 0 &&
                    (!bias.defined() || bias.shape() == Dims{w.size(1) * g.groups});
  if (!fits) {
    throw UsageError(
        "conv_transpose2d: expected x [N, C, H, W], w [C, O / groups, KH, KW] and bias [O] or none, got " +
        x.describe() + ", " + w.describe() + ", " + text_of(bias) + " and groups " +
        std::to_string(g.groups));
  }
  if (!chooses_size(padding_h, g.stride_h, g.dilation_h) ||
      !chooses_size(padding_w, g.stride_w, g.dilation_w)) {
    throw UsageError("conv_transpose2d: expected output_padding smaller than stride or dilation, got " +
                     std::to_string(padding_h) + "x" + std::to_string(padding_w));
  }
}

void check_conv_transpose3d(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv3dGeometry& g,
                            std::int64_t output_padding_d) {
  bool fits = x.rank() == 5 && w.rank() == 5 && g.groups > 0 && g.stride_d > 0 && g.dilation_d > 0 &&
              g.pad_d >= 0 && x.size(1) == w.size(0) && x.size(2) > 0 && w.size(2) > 0 &&
              (!bias.defined() || bias.shape() == Dims{w.size(1) * g.groups});
  fits = fits && chooses_size(output_padding_d, g.stride_d, g.dilation_d);
  fits = fits &&
         transposed_extent(x.size(2), w.size(2), g.stride_d, g.pad_d, g.dilation_d, output_padding_d) >= 0;
  if (fits) return;
  throw UsageError(
      "conv_transpose3d: expected x [N, C, D, H, W], w [C, O / groups, KD, KH, KW], bias [O] or none, "
      "positive strides and dilations, output_padding smaller than one of them, and padding of no more than "
      "there is, got " +
      x.describe() + ", " + w.describe() + ", " + text_of(bias) + ", groups " + std::to_string(g.groups) +
      ", stride " + std::to_string(g.stride_d) + ", padding " + std::to_string(g.pad_d) + ", dilation " +
      std::to_string(g.dilation_d) + " and output_padding " + std::to_string(output_padding_d) +
      " of the frames");
}

}  // namespace

Tensor conv1d(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv1dGeometry& g) {
  if (x.rank() != 3 || w.rank() != 3) {
    throw UsageError("conv1d: expected x [N, C, L] and w [O, C / groups, K], got " + x.describe() + " and " +
                     w.describe());
  }
  return conv2d(x.unsqueeze(2), w.unsqueeze(2), bias, {1, g.stride, 0, g.pad, 1, g.dilation, g.groups})
      .squeeze(2);
}

Tensor conv3d(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv3dGeometry& g) {
  check_conv3d(x, w, bias, g);
  const Tensor padded = g.pad_d == 0 ? x : pad(x, {0, 0, 0, 0, g.pad_d, g.pad_d});
  Windows windows{.dim = 2, .size = w.size(2), .step = g.stride_d, .dilation = g.dilation_d};
  windows.count = (padded.size(2) - g.dilation_d * (windows.size - 1) - 1) / g.stride_d + 1;
  const std::int64_t images = x.size(0) * windows.count;
  // [N, C, OD, H, W, KD] → [N · OD, C · KD, H, W]: the channels of a group stay together.
  const Tensor frames = windows_of(padded, windows)
                            .permute({0, 2, 1, 5, 3, 4})
                            .reshape({images, x.size(1) * windows.size, x.size(3), x.size(4)});
  const Tensor weight = w.reshape({w.size(0), w.size(1) * windows.size, w.size(3), w.size(4)});
  const Tensor y = conv2d(frames, weight, bias,
                          {g.stride_h, g.stride_w, g.pad_h, g.pad_w, g.dilation_h, g.dilation_w, g.groups});
  return y.reshape({x.size(0), windows.count, y.size(1), y.size(2), y.size(3)}).permute({0, 2, 1, 3, 4});
}

Tensor conv_transpose2d(const Tensor& given, const Tensor& weight, const Tensor& given_bias,
                        const Conv2dGeometry& g, std::int64_t output_padding_h,
                        std::int64_t output_padding_w) {
  const Tensor x = autocast_low(given), w = autocast_low(weight);
  const Tensor bias = given_bias.defined() ? autocast_low(given_bias) : given_bias;
  check_conv_transpose2d(x, w, bias, g, output_padding_h, output_padding_w);
  const std::int64_t channels = w.size(1) * g.groups;
  const Dims shape = {
      x.size(0), channels,
      transposed_extent(x.size(2), w.size(2), g.stride_h, g.pad_h, g.dilation_h, output_padding_h),
      transposed_extent(x.size(3), w.size(3), g.stride_w, g.pad_w, g.dilation_w, output_padding_w)};
  if (shape[2] < 0 || shape[3] < 0) {
    throw UsageError("conv_transpose2d: the output of " + x.describe() + " and " + w.describe() +
                     " would have shape " + shape.to_string() + "; pad less");
  }
  if (shape.product() == 0) {
    const Tensor nothing = Tensor::empty(shape, x.shared_device(), x.dtype());
    return record_constant("conv_transpose2d", nothing, {x, w, bias});
  }
  const Tensor y =
      conv2d_input_gradient(as_wide_as(shape, x, w, g), w, shape, g, MemoryFormat::channels_last);
  return autocast_rounded(bias.defined() ? add(y, bias.reshape({1, channels, 1, 1})) : y);
}

// Each frame becomes KD frames by one transposed convolution of images, and those overlap.
Tensor conv_transpose3d(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv3dGeometry& g,
                        const std::array<std::int64_t, 3>& output_padding) {
  check_conv_transpose3d(x, w, bias, g, output_padding[0]);
  const std::int64_t n = x.size(0), depth = x.size(2), size = w.size(2);
  const Tensor images = x.permute({0, 2, 1, 3, 4}).reshape({n * depth, x.size(1), x.size(3), x.size(4)});
  const Tensor weight = w.reshape({w.size(0), w.size(1) * size, w.size(3), w.size(4)});
  const Tensor y = conv_transpose2d(
      images, weight, {}, {g.stride_h, g.stride_w, g.pad_h, g.pad_w, g.dilation_h, g.dilation_w, g.groups},
      output_padding[1], output_padding[2]);
  const std::int64_t channels = w.size(1) * g.groups, height = y.size(2), width = y.size(3);
  const Tensor parts = y.reshape({n, depth, channels, size, height, width}).permute({0, 2, 1, 4, 5, 3});
  // Padding is what is cut off; a frame that nothing reaches is 0.
  const std::int64_t frames = transposed_extent(depth, size, g.stride_d, 0, g.dilation_d, output_padding[0]);
  const Windows windows{.dim = 2, .count = depth, .size = size, .step = g.stride_d, .dilation = g.dilation_d};
  const Tensor all = overlap_added("conv_transpose3d", parts, {n, channels, frames, height, width}, windows);
  const Tensor result = all.slice(2, g.pad_d, frames - g.pad_d);
  return bias.defined() ? add(result, bias.to(result.dtype()).reshape({1, channels, 1, 1, 1})) : result;
}

Tensor conv_transpose1d(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv1dGeometry& g,
                        std::int64_t output_padding) {
  if (x.rank() != 3 || w.rank() != 3) {
    throw UsageError("conv_transpose1d: expected x [N, C, L] and w [C, O / groups, K], got " + x.describe() +
                     " and " + w.describe());
  }
  return conv_transpose2d(x.unsqueeze(2), w.unsqueeze(2), bias,
                          {1, g.stride, 0, g.pad, 1, g.dilation, g.groups}, 0, output_padding)
      .squeeze(2);
}

}  // namespace dtrain
