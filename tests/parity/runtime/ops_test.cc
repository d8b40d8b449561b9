// Single operations and their gradients beside PyTorch's (tests/parity/make_ops_golden.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "tests/parity/runtime/golden.h"

namespace dtrain {
namespace {

using Inputs = std::vector<Tensor>;
using Operation = std::function<Tensor(const Inputs&)>;

// A few roundings of sums of about 100 products below 1.
constexpr double kTolerance = 3e-6;

std::map<std::string, Operation> make_operations(const std::shared_ptr<Device>& device) {
  const Tensor target = Tensor::from_data({std::int64_t{2}, std::int64_t{0}, std::int64_t{3}}, {3}, device);
  const auto conv = [](const Conv2dGeometry& geometry, Activation activation = Activation::none) {
    return [=](const Inputs& in) { return conv2d(in[0], in[1], in[2], geometry, activation); };
  };
  const auto pool = [](PoolKind kind) {
    return [kind](const Inputs& in) { return pool2d(in[0], {kind, 3, 3, 2, 2, 1, 1}); };
  };
  return {
      {"conv2d", conv({})},
      {"conv2d stride 2 padding 1", conv({2, 2, 1, 1})},
      {"conv2d dilation 2 groups 2", conv({1, 1, 0, 0, 2, 2, 2})},
      {"conv2d relu", conv({}, Activation::relu)},
      {"conv2d relu max_pool2d",
       [](const Inputs& in) { return conv2d_relu_pool2d(in[0], in[1], in[2], {}, {PoolKind::max}); }},
      {"max_pool2d 3 stride 2 padding 1", pool(PoolKind::max)},
      {"avg_pool2d 3 stride 2 padding 1", pool(PoolKind::avg)},
      {"linear", [](const Inputs& in) { return linear(in[0], in[1], in[2]); }},
      {"linear relu", [](const Inputs& in) { return linear(in[0], in[1], in[2], Activation::relu); }},
      {"matmul broadcast", [](const Inputs& in) { return matmul(in[0], in[1]); }},
      {"gelu", [](const Inputs& in) { return gelu(in[0]); }},
      {"sigmoid", [](const Inputs& in) { return sigmoid(in[0]); }},
      {"tanh", [](const Inputs& in) { return tanh(in[0]); }},
      {"div broadcast", [](const Inputs& in) { return in[0] / (in[1] + 3.0); }},
      {"log_softmax", [](const Inputs& in) { return log_softmax(in[0]); }},
      {"softmax", [](const Inputs& in) { return softmax(in[0]); }},
      {"cross_entropy", [target](const Inputs& in) { return cross_entropy(in[0], target); }},
      {"mse_loss", [](const Inputs& in) { return mse_loss(in[0], in[1]); }},
      {"mean and amax",
       [](const Inputs& in) {
         return mean(in[0], {0, 2}) * sum(amax(in[0], {0}), {-1});
       }},
      {"index_select", [target](const Inputs& in) { return in[0].index_select(0, target); }},
  };
}

Tensor draw(const Dims& shape, std::uint64_t seed, const std::shared_ptr<Device>& device) {
  Generator generator(seed);
  return Tensor::rand(shape, generator, device, -1, 1);
}

void expect_near(const Tensor& got, const nlohmann::json& expected, const std::string& what) {
  const auto values = got.to_vector<double>();
  const auto wanted = expected.get<std::vector<double>>();
  ASSERT_EQ(values.size(), wanted.size()) << what;
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_NEAR(values[i], wanted[i], kTolerance * std::max(1.0, std::abs(wanted[i]))) << what << " " << i;
  }
}

TEST(OperationParity, OutputsAndGradientsFollowPyTorch) {
  const auto device = make_device("cpu");
  const auto operations = make_operations(device);
  const auto golden = test::load_golden("golden_ops.json");
  ASSERT_EQ(golden["cases"].size(), operations.size());
  for (const auto& expected : golden["cases"]) {
    const auto name = expected["name"].get<std::string>();
    const auto seed = expected["seed"].get<std::uint64_t>();
    Inputs inputs;
    for (const auto& shape : expected["shapes"]) {
      const auto extents = shape.get<std::vector<std::int64_t>>();
      inputs.push_back(draw(Dims(std::span(extents)), seed + inputs.size(), device));
      inputs.back().set_requires_grad(true);
    }
    const Tensor output = operations.at(name)(inputs);
    expect_near(output, expected["output"], name);
    sum(output * draw(output.shape(), seed + inputs.size(), device)).backward();
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      expect_near(inputs[i].grad(), expected["gradients"][i], name + ", gradient " + std::to_string(i));
    }
  }
}

}  // namespace
}  // namespace dtrain
