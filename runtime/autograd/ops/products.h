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

/// The same of a matrix a [M, K] and a vector v [K]: `input` broadcasts to [M].
Tensor addmv(const Tensor& input, const Tensor& a, const Tensor& v, double beta = 1, double alpha = 1);

/// input + value · a · b and input + value · a / b, element by element; all three broadcast.
Tensor addcmul(const Tensor& input, const Tensor& a, const Tensor& b, Number value = 1);
Tensor addcdiv(const Tensor& input, const Tensor& a, const Tensor& b, Number value = 1);
/// From start (weight 0) to end (weight 1): start + weight · (end - start), element by element; at weights of
/// 1/2 and more end - (1 - weight) · (end - start), so that 1 gives `end` itself. All broadcast.
Tensor lerp(const Tensor& start, const Tensor& end, double weight);
Tensor lerp(const Tensor& start, const Tensor& end, const Tensor& weight);

}  // namespace dtrain
