// Limits on gradients before the update: torch.nn.utils.clip_grad_norm_ and clip_grad_value_. Nothing here
// waits for the device.
#pragma once

#include <optional>
#include <span>

#include "runtime/tensor/tensor.h"

namespace dtrain {

enum class NormKind {
  euclidean,  ///< the root of the sum of squares (norm_type 2)
  largest,    ///< the largest absolute value (norm_type inf)
};

/// The norm of all elements of `gradients` (those that are defined, of one dtype) as one vector, as a tensor
/// [] of their dtype (float32 for bf16 and f16) on the first one's device: the same bits wherever the others
/// are. Throws UsageError without any.
/// Where each rank has a part of the gradients, ranks combine their norms and use scale_to_norm().
Tensor total_norm(std::span<const Tensor> gradients, NormKind kind = NormKind::euclidean);

/// The two halves of total_norm(), for ranks that have some gradients each: the norm of one gradient, which
/// is defined, as above, and the norm of all from those of each, [N] in the order of the network's
/// parameters. Where ranks put those N together, it has the same bits however they are spread.
Tensor gradient_norm(const Tensor& gradient, NormKind kind = NormKind::euclidean);
Tensor norm_of_norms(const Tensor& norms, NormKind kind = NormKind::euclidean);

/// Multiplies the gradients in place by min(1, max_norm / (norm + 1e-6)); `norm` is a tensor [] as
/// total_norm() gives. A norm that is not finite makes them so too: the loss scaler sees it, or the caller.
void scale_to_norm(std::span<const Tensor> gradients, const Tensor& norm, double max_norm);

/// Both in turn: afterwards the norm is at most `max_norm`. Returns the norm from before. Between backward
/// and the optimizer's step, after GradScaler::unscale() where there is one. Throws UsageError for a max_norm
/// that is negative or not a number.
///
///     clip_grad_norm(optimizer.gradients(), 1.0);
Tensor clip_grad_norm(std::span<const Tensor> gradients, double max_norm,
                      NormKind kind = NormKind::euclidean);

/// Limits each element to [-limit, limit], in place. Throws UsageError for a limit that is negative or not a
/// number.
void clip_grad_value(std::span<const Tensor> gradients, double limit);

/// What gradients may be before an update; nothing set: anything.
struct GradientLimits {
  std::optional<double> norm;   ///< of all together, as clip_grad_norm()
  std::optional<double> value;  ///< of each element, as clip_grad_value()
};

/// First each element, then the norm of what that leaves; no gradients at all are left so. Throws as the two
/// functions.
void limit_gradients(std::span<const Tensor> gradients, const GradientLimits& limits);

}  // namespace dtrain
