// How the data-moving members of Tensor tell autograd what they did, without including it.
#pragma once

#include <functional>
#include <string_view>

#include "runtime/tensor/tensor.h"

namespace dtrain {

/// Maps the gradient of a linear operation's result to the gradient of its source, using differentiable
/// operations.
using Adjoint = std::function<Tensor(const Tensor& grad)>;

/// `result` as a recorded function of `source`, or unchanged when nothing is to be recorded. Defined in
/// runtime/autograd, the only layer that knows the tape.
Tensor record_linear(std::string_view name, const Tensor& source, Tensor result, Adjoint adjoint);

/// Throws UsageError when `target` may not be modified in place from `source` (may be undefined) now.
void check_in_place(std::string_view name, const Tensor& target, const Tensor& source);

}  // namespace dtrain
