// Sums of products by their indices.
#pragma once

#include <initializer_list>
#include <span>
#include <string_view>

#include "runtime/tensor/tensor.h"

namespace dtrain {

/// einsum("bij,bjk->bik", {a, b}): a letter for each dimension of each tensor, and those of the result. What
/// is not in the result is summed over; without "->" the result has the letters that stand once, in order of
/// the alphabet. Two tensors are one matrix product; more are taken in turn from the left. Throws UsageError
/// for patterns that do not fit, among them what torch.einsum has beyond this: a letter twice in one tensor,
/// and "...".
Tensor einsum(std::string_view pattern, std::span<const Tensor> tensors);
inline Tensor einsum(std::string_view pattern, std::initializer_list<Tensor> tensors) {
  return einsum(pattern, std::span(tensors.begin(), tensors.size()));
}

}  // namespace dtrain
