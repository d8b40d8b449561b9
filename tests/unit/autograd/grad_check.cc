#include "tests/unit/autograd/grad_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace dtrain::test {
namespace {

constexpr double kStep = 1e-5;
// Central differences err by about kStep² times a third derivative plus 1e-16 / kStep: 1e-9 here.
constexpr double kTolerance = 1e-7;
constexpr std::uint64_t kWeightSeed = 1234;

Tensor weighted_sum(const Tensor& output, std::uint64_t seed) {
  return sum(mul(output, random_f64(output.shape(), seed, 0.5, 1.5)));
}

std::vector<Tensor> fresh_leaves(const std::vector<Tensor>& inputs) {
  std::vector<Tensor> leaves;
  for (const Tensor& input : inputs) {
    Tensor leaf = input.detach().clone();
    leaf.set_requires_grad(true);
    leaves.push_back(leaf);
  }
  return leaves;
}

/// A scalar of the inputs, and its gradient.
struct Scalar {
  std::function<double(const std::vector<Tensor>&)> value;
  std::function<std::vector<Tensor>(const std::vector<Tensor>&)> gradient;
};

void compare(const Scalar& scalar, const std::vector<Tensor>& inputs) {
  const std::vector<Tensor> gradient = scalar.gradient(fresh_leaves(inputs));
  for (std::size_t which = 0; which < inputs.size(); ++which) {
    const std::vector<double> values = inputs[which].to_vector<double>();
    const std::vector<double> analytic =
        gradient[which].defined() ? gradient[which].to_vector<double>() : std::vector<double>(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto shifted = [&](double by) {
        std::vector<double> moved = values;
        moved[i] += by;
        std::vector<Tensor> all = inputs;
        all[which] = Tensor::from_data(moved, inputs[which].shape(), inputs[which].shared_device());
        return scalar.value(fresh_leaves(all));
      };
      const double numeric = (shifted(kStep) - shifted(-kStep)) / (2 * kStep);
      EXPECT_NEAR(analytic[i], numeric, kTolerance * std::max(1.0, std::abs(numeric)))
          << "input " << which << ", element " << i;
    }
  }
}

}  // namespace

const std::shared_ptr<Device>& cpu() {
  static const std::shared_ptr<Device> device = make_device("cpu");
  return device;
}

Tensor random_f64(const Dims& shape, std::uint64_t seed, double low, double high) {
  Generator generator(seed);
  return Tensor::rand(shape, generator, cpu(), static_cast<float>(low), static_cast<float>(high))
      .to(DType::f64);
}

void expect_gradients(const Function& f, const std::vector<Tensor>& inputs) {
  compare({[&](const std::vector<Tensor>& x) { return weighted_sum(f(x), kWeightSeed).item(); },
           [&](const std::vector<Tensor>& x) {
             weighted_sum(f(x), kWeightSeed).backward();
             std::vector<Tensor> result;
             for (const Tensor& leaf : x) result.push_back(leaf.grad());
             return result;
           }},
          inputs);
}

void expect_second_gradients(const Function& f, const std::vector<Tensor>& inputs) {
  const auto first_order = [&f](const std::vector<Tensor>& x) {
    const auto gradient = gradients(weighted_sum(f(x), kWeightSeed), x, {}, {.create_graph = true});
    Tensor total;
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      if (!gradient[i].defined()) continue;
      const Tensor part = weighted_sum(gradient[i], kWeightSeed + 1 + i);
      total = total.defined() ? add(total, part) : part;
    }
    return total;
  };
  compare({[&](const std::vector<Tensor>& x) { return first_order(x).item(); },
           [&](const std::vector<Tensor>& x) {
             const Tensor total = first_order(x);
             // A linear function has constant gradients: nothing to differentiate, and all numbers are zero.
             return total.requires_grad() ? gradients(total, x) : std::vector<Tensor>(x.size());
           }},
          inputs);
}

}  // namespace dtrain::test
