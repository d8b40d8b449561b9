// Truth values of elements, and what is written where they are true.
#pragma once

#include <cstdint>

#include "runtime/tensor/number.h"
#include "runtime/tensor/tensor.h"

namespace dtrain {

/// bool: false everywhere for integers, but for isfinite().
Tensor isnan(const Tensor& x);
Tensor isinf(const Tensor& x);
Tensor isfinite(const Tensor& x);

/// `value` where the bool tensor `mask`, which broadcasts to x, is true, else x.
Tensor masked_fill(const Tensor& x, const Tensor& mask, Number value);

/// The lower or upper triangle of the last two dimensions, zeros elsewhere. `diagonal` is the last (the
/// first) that is kept: 0 the main one, 1 the one above it.
Tensor tril(const Tensor& x, std::int64_t diagonal = 0);
Tensor triu(const Tensor& x, std::int64_t diagonal = 0);

}  // namespace dtrain
