#include "runtime/autograd/functions/convolution_shape.h"

#include <string>

#include "runtime/autograd/functions/elementwise.h"
#include "runtime/base/error.h"
#include "runtime/device/kernel_checks.h"
#include "runtime/tensor/checks.h"

namespace dtrain {

Dims conv2d_shape(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv2dGeometry& g) {
  check_floating("conv2d", x);
  check_same_kind("conv2d", x, w);
  if (bias.defined() && !(is_half(x.dtype()) && bias.dtype() == DType::f32)) {
    check_same_kind("conv2d", x, bias);
  }
  check_same_device("conv2d", x, bias);
  const bool fits = x.rank() == 4 && w.rank() == 4 && g.groups >= 1 && x.size(1) == w.size(1) * g.groups &&
                    w.size(0) % g.groups == 0 && (!bias.defined() || bias.shape() == Dims{w.size(0)});
  if (!fits) {
    throw UsageError("conv2d: expected x [N, C, H, W], w [O, C / groups, KH, KW] and bias [O], got " +
                     x.describe() + ", " + w.describe() + " and " + bias.describe() + " with groups " +
                     std::to_string(g.groups));
  }
  require_geometry("conv2d", g, w.view());
  const std::int64_t oh = window_outputs(x.size(2), w.size(2), g.stride_h, g.pad_h, g.dilation_h);
  const std::int64_t ow = window_outputs(x.size(3), w.size(3), g.stride_w, g.pad_w, g.dilation_w);
  if (oh < 1 || ow < 1) {
    throw UsageError("conv2d: the window of w " + w.describe() + " does not fit into x " + x.describe() +
                     " with padding " + std::to_string(g.pad_h) + "x" + std::to_string(g.pad_w));
  }
  return {x.size(0), x.size(1) == 0 ? 0 : w.size(0), oh, ow};
}

Dims pool2d_shape(const Dims& x, const Pool2dGeometry& g) {
  require_geometry("pool2d", g);
  const std::int64_t oh = window_outputs(x[2], g.kernel_h, g.stride_h, g.pad_h, 1);
  const std::int64_t ow = window_outputs(x[3], g.kernel_w, g.stride_w, g.pad_w, 1);
  if (oh < 1 || ow < 1) {
    throw UsageError("pool2d: a window of " + std::to_string(g.kernel_h) + "x" + std::to_string(g.kernel_w) +
                     " with stride " + std::to_string(g.stride_h) + "x" + std::to_string(g.stride_w) +
                     " does not fit into x " + x.to_string());
  }
  return {x[0], x[1], oh, ow};
}

Dims pool2d_shape(const Tensor& x, const Pool2dGeometry& geometry) {
  check_floating("pool2d", x);
  if (x.rank() != 4) throw UsageError("pool2d: expected x [N, C, H, W], got " + x.describe());
  return pool2d_shape(x.shape(), geometry);
}

bool is_dense(const Tensor& x) { return x.is_contiguous() || x.is_contiguous(MemoryFormat::channels_last); }

}  // namespace dtrain
