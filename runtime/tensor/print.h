// A tensor as text: what PyTorch's repr() gives, so that numbers can be compared by eye or with diff.
#pragma once

#include <iosfwd>
#include <string>

#include "runtime/tensor/tensor.h"

namespace dtrain {

/// "tensor([[1., 2.],\n        [3., 4.]])": the text of repr(tensor) in PyTorch under its default print
/// options (4 digits, 80 columns, the first and last 3 of each dimension above 1000 elements), with dtype,
/// device and requires_grad=True where PyTorch shows them. How a result was computed (grad_fn) is left out;
/// an undefined tensor is "undefined". Waits for the device; of a large tensor only what is shown is copied
/// from it.
std::string to_string(const Tensor& tensor);

std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

}  // namespace dtrain
