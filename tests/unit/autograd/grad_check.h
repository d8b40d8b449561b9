// Gradients against central differences in float64.
#pragma once

#include <functional>
#include <vector>

#include "runtime/autograd/gradients.h"

namespace dtrain::test {

using Function = std::function<Tensor(const std::vector<Tensor>&)>;

/// The one device of these tests: operands must share theirs.
const std::shared_ptr<Device>& cpu();

/// float64, uniform in [low, high), the same for the same seed.
Tensor random_f64(const Dims& shape, std::uint64_t seed, double low = -1, double high = 1);

/// Checks d(Σ w·f(inputs))/d(inputs), with fixed random weights w, against central differences.
void expect_gradients(const Function& f, const std::vector<Tensor>& inputs);

/// Checks the gradients of those gradients the same way.
void expect_second_gradients(const Function& f, const std::vector<Tensor>& inputs);

}  // namespace dtrain::test
