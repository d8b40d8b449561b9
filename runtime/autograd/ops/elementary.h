// Elementary functions of one tensor beside those of ops.h, element by element, as torch has them. Floating
// dtypes; floor(), ceil(), round() and trunc() give a tensor of integers back as it is.
#pragma once

#include "runtime/tensor/tensor.h"

namespace dtrain {

Tensor sin(const Tensor& x);
Tensor cos(const Tensor& x);
/// 2 / √π · ∫ exp(-t²) dt from 0 to x.
Tensor erf(const Tensor& x);
/// exp(x) - 1 and log(1 + x), exact beside 0.
Tensor expm1(const Tensor& x);
Tensor log1p(const Tensor& x);

// ---- steps: their gradient is 0 everywhere
Tensor floor(const Tensor& x);
Tensor ceil(const Tensor& x);
/// To the nearest whole number, halves to the even one.
Tensor round(const Tensor& x);
/// Towards 0.
Tensor trunc(const Tensor& x);
/// 1, 0 or -1; 0 for NaN. Also int64.
Tensor sign(const Tensor& x);

}  // namespace dtrain
