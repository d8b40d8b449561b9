// Products of matrices that are added to something, by torch's names.
#pragma once

#include "runtime/tensor/tensor.h"

namespace dtrain {

/// beta · input + alpha · a · b of matrices a [M, K] and b [K, N]; `input` broadcasts to [M, N], and is not
/// looked at where beta is 0. Under Autocast the product is of the lower precision, and so is the sum. Throws
/// UsageError for other ranks, and as matmul() does.
Tensor addmm(const Tensor& input, const Tensor& a, const Tensor& b, double beta = 1, double alpha = 1);
/// The same of batches a [B, M, K] and b [B, K, N].
Tensor baddbmm(const Tensor& input, const Tensor& a, const Tensor& b, double beta = 1, double alpha = 1);

}  // namespace dtrain
