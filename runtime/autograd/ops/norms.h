// Normalisation over the last dimensions, as transformers use it.
#pragma once

#include "runtime/tensor/tensor.h"

namespace dtrain {

/// (x - mean) / √(variance + eps) · weight + bias, mean and biased variance taken over the last dimensions,
/// whose extents are `shape` (torch's normalized_shape); weight and bias have that shape or are undefined.
/// In float32 under autocast. Throws UsageError where they do not fit.
Tensor layer_norm(const Tensor& x, const Dims& shape, const Tensor& weight, const Tensor& bias,
                  double eps = 1e-5);

/// x / √(mean of x² + eps) · weight (Zhang and Sennrich 2019), over the same dimensions.
Tensor rms_norm(const Tensor& x, const Dims& shape, const Tensor& weight, double eps);

}  // namespace dtrain
