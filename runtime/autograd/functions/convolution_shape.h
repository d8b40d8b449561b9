// Shapes of what convolution and pooling compute, with the checks that belong to them.
#pragma once

#include "runtime/tensor/tensor.h"

namespace dtrain {

/// How activations of pictures lie in memory.
inline constexpr MemoryFormat kChannelsLast = MemoryFormat::channels_last;

/// [N, O, OH, OW]. Throws UsageError naming conv2d and all operands when they do not fit.
Dims conv2d_shape(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv2dGeometry& geometry);

/// Output [N, C, PH, PW] for x [N, C, H, W]. Throws UsageError naming pool2d.
Dims pool2d_shape(const Tensor& x, const Pool2dGeometry& geometry);
Dims pool2d_shape(const Dims& x, const Pool2dGeometry& geometry);

/// True for what the kernels take as an activation: contiguous or channels-last.
bool is_dense(const Tensor& x);

}  // namespace dtrain
