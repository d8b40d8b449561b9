// Losses beside those of ops.h. `prediction` and `target` have one shape, dtype and device, else UsageError.
#pragma once

#include "runtime/autograd/ops.h"

namespace dtrain {

/// -(t · log(p) + (1 - t) · log(1 - p)) of probabilities p; logarithms count as at least -100, as in PyTorch.
/// Throws UsageError for p or t outside [0, 1], on devices that do not run ahead; on others the loss is NaN.
Tensor binary_cross_entropy(const Tensor& prediction, const Tensor& target,
                            LossReduction reduction = LossReduction::mean);
/// The same of p = sigmoid(logits), exact for logits of any size.
Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& target,
                                        LossReduction reduction = LossReduction::mean);
/// |prediction - target|
Tensor l1_loss(const Tensor& prediction, const Tensor& target, LossReduction reduction = LossReduction::mean);
/// d² / (2 · beta) where d = |prediction - target| is below `beta`, else d - beta / 2; l1_loss for beta 0.
Tensor smooth_l1_loss(const Tensor& prediction, const Tensor& target,
                      LossReduction reduction = LossReduction::mean, double beta = 1);

}  // namespace dtrain
