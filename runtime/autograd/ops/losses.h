// Losses beside those of ops.h. `prediction` and `target` have one shape, dtype and device, else UsageError.
#pragma once

#include <cstdint>
#include <optional>

#include "runtime/autograd/ops.h"

namespace dtrain {

/// -(t · log(p) + (1 - t) · log(1 - p)) of probabilities p; logarithms count as at least -100, as in PyTorch.
/// Throws UsageError for p or t outside [0, 1], on devices that do not run ahead; on others the loss is NaN.
Tensor binary_cross_entropy(const Tensor& prediction, const Tensor& target,
                            LossReduction reduction = LossReduction::mean);
/// The same of p = sigmoid(logits), exact for logits of any size. `pos_weight`, which broadcasts to the
/// target, multiplies what positive targets contribute.
Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& target,
                                        LossReduction reduction = LossReduction::mean,
                                        const Tensor& pos_weight = {});
/// |prediction - target|
Tensor l1_loss(const Tensor& prediction, const Tensor& target, LossReduction reduction = LossReduction::mean);
/// d² / (2 · beta) where d = |prediction - target| is below `beta`, else d - beta / 2; l1_loss for beta 0.
Tensor smooth_l1_loss(const Tensor& prediction, const Tensor& target,
                      LossReduction reduction = LossReduction::mean, double beta = 1);

struct CrossEntropyOptions {
  LossReduction reduction = LossReduction::mean;
  std::optional<std::int64_t> ignore_index = std::nullopt;  ///< of class indices
  /// This much of each target is spread over all classes evenly; 0 to 1.
  double label_smoothing = 0;
  /// [C], of logits' dtype: how much each class counts, in the mean of class indices too. Gets no gradient.
  Tensor weight = {};
};

/// As cross_entropy() of ops.h, with weights and label smoothing. The mean over class indices is over their
/// weights; over probabilities it is over elements, as in PyTorch.
///
///     cross_entropy(logits, labels, {.label_smoothing = 0.1, .weight = rare_classes_more});
Tensor cross_entropy(const Tensor& logits, const Tensor& target, const CrossEntropyOptions& options);

/// target · (log(target) - prediction), 0 where the target is 0: `prediction` has logarithms of
/// probabilities, and so has the target if `log_target`. The divergence of distributions in rows is
/// LossReduction::batch_mean.
Tensor kl_div(const Tensor& prediction, const Tensor& target, LossReduction reduction = LossReduction::mean,
              bool log_target = false);

}  // namespace dtrain
