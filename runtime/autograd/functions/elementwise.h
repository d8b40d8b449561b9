// What the differentiable operations share: checked, unrecorded calls of the element-wise kernels.
#pragma once

#include <initializer_list>
#include <string_view>

#include "runtime/autograd/ops.h"

namespace dtrain {

/// Throws UsageError naming the operation unless both are on one device and have one dtype.
void check_same_kind(std::string_view name, const Tensor& a, const Tensor& b);

/// Throws UsageError naming the operation unless `x` has a floating dtype.
void check_floating(std::string_view name, const Tensor& x);

/// Uninitialised, with x's shape, dtype, device and memory format.
Tensor empty_like(const Tensor& x);

/// `op` of each element; not recorded.
Tensor apply(UnaryOp op, const Tensor& x);

/// `op` of each element with two numbers; not recorded.
Tensor apply(ParametricOp op, const Tensor& x, double a, double b);

/// `op` of each pair, broadcasting; not recorded.
Tensor apply(std::string_view name, BinaryOp op, const Tensor& a, const Tensor& b);

/// Whether x / number in float32 or float64 may differ in its last bit from x · (1 / number). A power of two
/// has an exact inverse.
bool differs_from_product(DType dtype, Number number);

/// `result` as a recorded function of `inputs` that does not depend on their values: all gradients are 0.
Tensor record_constant(std::string_view name, Tensor result, std::initializer_list<Tensor> inputs);

/// What a loss function returns of its elements.
Tensor reduced(const Tensor& losses, LossReduction reduction);

/// grad where gate > 0, else 0; recorded as a linear function of `grad`. Writes over `grad` when no one else
/// sees it.
Tensor relu_grad(Tensor grad, const Tensor& gate);

}  // namespace dtrain
