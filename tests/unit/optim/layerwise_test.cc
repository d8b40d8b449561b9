// LARS and LAMB against their papers' formulas in float64, over some steps, with layers that have a rate of
// their own, biases that have none, and a layer of zeros.
#include "runtime/optim/layerwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

using Vector = std::vector<double>;

double norm(const Vector& x) {
  double squares = 0;
  for (const double value : x) squares += value * value;
  return std::sqrt(squares);
}

struct Layer {
  std::string name;
  Vector w, state1, state2;
};

std::vector<Layer> layers() {
  return {{"weight", {1, -2, 0.5, 3}, Vector(4), Vector(4)},
          {"bias", {0.1, -0.2}, Vector(2), Vector(2)},
          {"fresh", {0, 0, 0}, Vector(3), Vector(3)}};
}

double gradient(int step, std::size_t layer, std::size_t i) {
  return std::sin(1.0 + step * 0.7 + static_cast<double>(layer) * 1.3 + static_cast<double>(i) * 0.9);
}

/// Runs the optimizer and `rule` (step from 1, the layer, its gradient) beside each other.
void compare(const std::function<std::unique_ptr<Optimizer>(const NamedTensors&)>& make,
             const std::function<void(int, Layer&, const Vector&)>& rule) {
  const auto device = make_device("cpu");
  std::vector<Layer> expected = layers();
  NamedTensors parameters;
  for (const Layer& layer : expected) {
    const std::vector<float> values(layer.w.begin(), layer.w.end());
    Tensor tensor = Tensor::from_data(values, {static_cast<std::int64_t>(values.size())}, device);
    tensor.set_requires_grad(true);
    parameters.emplace_back(layer.name, tensor);
  }
  auto optimizer = make(parameters);
  for (int step = 1; step <= 6; ++step) {
    if (step == 4) {  // as after a restart
      NamedTensors saved;
      for (const auto& [name, tensor] : optimizer->named_state()) saved.emplace_back(name, tensor.clone());
      optimizer = make(parameters);
      optimizer->load_state(saved);
    }
    for (std::size_t k = 0; k < expected.size(); ++k) {
      Vector g;
      std::vector<float> g32;
      for (std::size_t i = 0; i < expected[k].w.size(); ++i) {
        g32.push_back(static_cast<float>(gradient(step, k, i)));
        g.push_back(g32.back());
      }
      parameters[k].second.set_grad(Tensor::from_data(g32, {static_cast<std::int64_t>(g32.size())}, device));
      rule(step, expected[k], g);
    }
    optimizer->step();
    for (std::size_t k = 0; k < expected.size(); ++k) {
      const auto got = parameters[k].second.to_vector<double>();
      for (std::size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got[i], expected[k].w[i], 1e-5) << expected[k].name << ", step " << step;
    }
  }
}

TEST(Lars, FollowsThePaper) {
  const LarsOptions options{.lr = 0.5, .momentum = 0.8, .weight_decay = 0.02, .trust = 0.05};
  compare(
      [&](const NamedTensors& parameters) {
        return std::make_unique<Lars>(layerwise_groups(parameters, {"bias"}, options));
      },
      [&](int, Layer& layer, const Vector& g) {
        const bool adapts = layer.name != "bias";
        const double decay = adapts ? options.weight_decay : 0, of_w = norm(layer.w), of_g = norm(g);
        const double rate =
            adapts && of_w > 0 && of_g > 0 ? options.trust * of_w / (of_g + decay * of_w) : 1.0;
        for (std::size_t i = 0; i < g.size(); ++i) {
          layer.state1[i] = options.momentum * layer.state1[i] + rate * (g[i] + decay * layer.w[i]);
        }
        for (std::size_t i = 0; i < g.size(); ++i) layer.w[i] -= options.lr * layer.state1[i];
      });
}

TEST(Lamb, FollowsThePaper) {
  const LambOptions options{.lr = 0.03, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.05};
  compare(
      [&](const NamedTensors& parameters) {
        return std::make_unique<Lamb>(layerwise_groups(parameters, {"bias"}, options));
      },
      [&](int step, Layer& layer, const Vector& g) {
        const bool adapts = layer.name != "bias";
        Vector u(g.size());
        for (std::size_t i = 0; i < g.size(); ++i) {
          layer.state1[i] = options.beta1 * layer.state1[i] + (1 - options.beta1) * g[i];
          layer.state2[i] = options.beta2 * layer.state2[i] + (1 - options.beta2) * g[i] * g[i];
          const double m = layer.state1[i] / (1 - std::pow(options.beta1, step));
          const double v = layer.state2[i] / (1 - std::pow(options.beta2, step));
          u[i] = m / (std::sqrt(v) + options.eps) + (adapts ? options.weight_decay : 0) * layer.w[i];
        }
        const double of_w = norm(layer.w), of_u = norm(u);
        const double rate = adapts && of_w > 0 && of_u > 0 ? of_w / of_u : 1.0;
        for (std::size_t i = 0; i < g.size(); ++i) layer.w[i] -= options.lr * rate * u[i];
      });
}

TEST(Layerwise, RefuseOptionsOutOfRange) {
  const auto device = make_device("cpu");
  Tensor w = Tensor::ones({2}, device);
  w.set_requires_grad(true);
  EXPECT_THROW(Lars({{"w", w}}, {.trust = -1}), UsageError);
  EXPECT_THROW(Lamb({{"w", w}}, {.beta1 = 1}), UsageError);
}

}  // namespace
}  // namespace dtrain
