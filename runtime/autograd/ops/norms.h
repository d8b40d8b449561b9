// Normalisation within a sample: over the last dimensions, as transformers use it, or over groups of
// channels.
#pragma once

#include <cstdint>

#include "runtime/tensor/tensor.h"

namespace dtrain {

/// (x - mean) / √(variance + eps) · weight + bias, mean and biased variance taken over the last dimensions,
/// whose extents are `shape` (torch's normalized_shape); weight and bias have that shape or are undefined.
/// In float32 under autocast. Throws UsageError where they do not fit.
Tensor layer_norm(const Tensor& x, const Dims& shape, const Tensor& weight, const Tensor& bias,
                  double eps = 1e-5);

/// x / √(mean of x² + eps) · weight (Zhang and Sennrich 2019), over the same dimensions.
Tensor rms_norm(const Tensor& x, const Dims& shape, const Tensor& weight, double eps);

/// (x - mean) / √(variance + eps) · weight + bias over groups of neighbouring channels (Wu and He 2018): x
/// [N, C, …], statistics of each sample and each of `groups` groups, weight and bias [C] or undefined. In
/// float32 under autocast. Throws UsageError where they do not fit.
Tensor group_norm(const Tensor& x, std::int64_t groups, const Tensor& weight, const Tensor& bias,
                  double eps = 1e-5);

/// The same over each channel of each sample (Ulyanov et al. 2016), x [N, C, L], [N, C, H, W], …
Tensor instance_norm(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {}, double eps = 1e-5);

}  // namespace dtrain
