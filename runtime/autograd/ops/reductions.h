// Reductions beside sum, mean, amax and amin of ops.h, as torch has them: made of those and of element-wise
// operations, so that they run on every device and have every derivative. `dims` as there: none are all.
#pragma once

#include "runtime/tensor/tensor.h"

namespace dtrain {

/// Σ (x - mean)² / (count - correction): the sample's variance, or with correction 0 the population's. NaN
/// where the count is not above the correction, as in PyTorch.
Tensor var(const Tensor& x, const Dims& dims = {}, double correction = 1, bool keep = false);
/// Its square root; no gradient where it is 0.
Tensor std(const Tensor& x, const Dims& dims = {}, double correction = 1, bool keep = false);

/// (Σ |x|^order)^(1 / order), as torch.linalg.vector_norm; of order ∞ the largest |x|, of -∞ the smallest, of
/// 0 how many are not 0. No gradient where it is 0.
Tensor norm(const Tensor& x, double order = 2, const Dims& dims = {}, bool keep = false);

/// log Σ exp(x): nothing overflows on the way.
Tensor logsumexp(const Tensor& x, const Dims& dims, bool keep = false);

/// The product of all elements, or along `dim`; of none it is 1. Gradients are right beside zeros, too. In
/// log₂(count) passes.
Tensor prod(const Tensor& x);
Tensor prod(const Tensor& x, int dim, bool keep = false);

/// The largest or smallest element along `dim` and its first place. The gradient goes to that place alone,
/// where amax() shares it. NaN wins.
Sorted max(const Tensor& x, int dim, bool keep = false);
Sorted min(const Tensor& x, int dim, bool keep = false);
/// As argmax.
Tensor argmin(const Tensor& x, int dim = -1, bool keep = false);

}  // namespace dtrain
