// The two gradients of conv2d and that of pooling as differentiable functions. Each is linear in the gradient
// it is given, and conv2d and its two gradients are one bilinear form seen from three sides, so that
// derivatives of any order stay among them.
#pragma once

#include "runtime/tensor/tensor.h"

namespace dtrain {

/// The gradient of conv2d with respect to its input, of `shape` [N, C, H, W] and in `format`, from that of
/// its output, grad [N, O, OH, OW], and w [O, C / groups, KH, KW].
Tensor conv2d_input_gradient(const Tensor& grad, const Tensor& w, const Dims& shape,
                             const Conv2dGeometry& geometry, MemoryFormat format);

/// The gradient of conv2d with respect to its weight, of `shape` [O, C / groups, KH, KW], from its input x
/// [N, C, H, W] and the gradient of its output, grad [N, O, OH, OW].
Tensor conv2d_weight_gradient(const Tensor& x, const Tensor& grad, const Dims& shape,
                              const Conv2dGeometry& geometry);

/// The gradient of pool2d with respect to its input, of `shape` and in `format`, from that of its output.
/// `indices` are what max pooling recorded, undefined for average pooling.
Tensor pool2d_gradient(const Tensor& grad, const Tensor& indices, const Dims& shape,
                       const Pool2dGeometry& geometry, MemoryFormat format);

}  // namespace dtrain
