// One table for all operations: how far outputs and gradients are from PyTorch's (make_golden.py). A family
// of operations is a test file with its operations by name, beside FAMILY.py, which computes the same with
// PyTorch, and FAMILY.json, what came out.
#pragma once

#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <vector>

#include "runtime/autograd/ops.h"

namespace dtrain::test {

using Inputs = std::vector<Tensor>;

/// What an operation returns: one tensor, or several in PyTorch's order.
class Outputs {
 public:
  Outputs(Tensor one) : all_{std::move(one)} {}                      // NOLINT: Tensor is what most return
  Outputs(std::initializer_list<Tensor> several) : all_(several) {}  // NOLINT
  const std::vector<Tensor>& all() const noexcept { return all_; }

 private:
  std::vector<Tensor> all_;
};

/// The operations of a family under the names of FAMILY.json. They get the float inputs, then the index ones
/// (int64), all on one CPU device.
using Family = std::map<std::string, std::function<Outputs(const Inputs&)>>;

/// Runs every case of FAMILY.json, adds a row for each to the table that is printed when all tests are done,
/// and fails where an error is above kParityLimit, or where the names of the two sides differ.
void expect_parity(const std::string& family, const Family& operations);

/// The largest error of a tensor, as a share of its largest expected value: fp32 sums in another order differ
/// by some 1e-7; a wrong formula differs by far more.
inline constexpr double kParityLimit = 1e-5;

}  // namespace dtrain::test
