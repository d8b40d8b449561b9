// conv2d around its kernel, for functions that do more in the same one.
#pragma once

#include "runtime/autograd/ops.h"

namespace dtrain {

/// The operands as the kernel takes them, and memory for what it writes.
struct ConvolutionCall {
  Tensor x;
  Tensor parameter;  ///< w's source, with its history: under autocast w is a copy without one
  Tensor w, bias, result;
  Conv2dGeometry geometry;
  Activation activation = Activation::none;

  View bias_view() const { return bias.defined() ? bias.view() : View{}; }
};

/// Throws UsageError as conv2d.
ConvolutionCall prepare_conv2d(const Tensor& x, const Tensor& w, const Tensor& bias,
                               const Conv2dGeometry& geometry, Activation activation);
/// The result with its history, once the kernel has been called.
Tensor record_conv2d(ConvolutionCall call);

}  // namespace dtrain
