// How the data-moving members of Tensor tell autograd what they did, without including it.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <type_traits>
#include <utility>

#include "runtime/tensor/tensor.h"

namespace dtrain {

/// Maps the gradient of a linear operation's result to the gradient of its source, using differentiable
/// operations.
using Adjoint = std::function<Tensor(const Tensor& grad)>;

/// `result` as a recorded function of `source`, or unchanged when nothing is to be recorded. An adjoint that
/// `keeps_tensors` is freed by the first backward through it; another can run any number of times. Defined in
/// runtime/autograd, the only layer that knows the tape.
Tensor record_linear(std::string_view name, const Tensor& source, Tensor result, Adjoint adjoint,
                     bool keeps_tensors);

/// The same for a function or a closure: one that needs no destructor keeps nothing but numbers.
template <class F>
Tensor record_linear(std::string_view name, const Tensor& source, Tensor result, F adjoint) {
  return record_linear(name, source, std::move(result), Adjoint(std::move(adjoint)),
                       !std::is_trivially_destructible_v<F>);
}

/// This thread is done with an operation: whatever it looked at through Tensor::view() is not used any more.
void end_operation() noexcept;
/// How often this thread said so.
std::uint64_t operations_ended() noexcept;

/// Throws UsageError when `target` may not be modified in place from `source` (may be undefined) now.
void check_in_place(std::string_view name, const Tensor& target, const Tensor& source);

/// Throws UsageError, which begins with `name`, where Tensor::move_to() refuses `tensor`.
void check_movable(std::string_view name, const Tensor& tensor);

}  // namespace dtrain
