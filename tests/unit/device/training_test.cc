// Losses against formulas in double, optimizers against numbers from PyTorch.
#include <gtest/gtest.h>

#include <string>

#include "runtime/base/error.h"
#include "tests/unit/device/array.h"

namespace dtrain {
namespace {

using test::Array;

TEST(CrossEntropy, MatchesTheFormulaAndItsGradient) {
  const auto device = make_device("cpu");
  Kernels& kernels = device->kernels();
  Generator generator(1);
  constexpr std::int64_t kRows = 7, kClasses = 10;
  for (const DType dtype : {DType::f32, DType::f64}) {
    const double tolerance = dtype == DType::f32 ? 1e-6 : 1e-14;
    Array logits = Array::random({kRows, kClasses}, generator, dtype);
    auto values = logits.values();
    for (std::int64_t c = 0; c < kClasses; ++c)
      values[static_cast<std::size_t>(c)] += 500;  // would overflow exp
    logits.set(values);
    Array target({kRows}, DType::i64), log_probs({kRows, kClasses}, dtype), losses({kRows}, dtype),
        scale({1}, dtype), grads({kRows, kClasses}, dtype);
    target.set({0, 9, 3, 3, 5, 1, 7});
    scale.set({0.125});
    View grad_losses = scale;
    grad_losses.shape = {kRows};
    grad_losses.strides = {0};
    kernels.cross_entropy(logits, target, std::nullopt, log_probs, losses);
    kernels.cross_entropy_backward(log_probs, target, std::nullopt, grad_losses, grads);

    std::vector<double> expected_losses, expected_grads;
    const auto wanted = target.values();
    for (std::size_t r = 0; r < kRows; ++r) {
      const double* row = values.data() + r * kClasses;
      double sum = 0;
      for (std::size_t c = 0; c < kClasses; ++c) sum += std::exp(row[c] - row[0]);
      const auto t = static_cast<std::size_t>(wanted[r]);
      expected_losses.push_back(std::log(sum) + row[0] - row[t]);
      for (std::size_t c = 0; c < kClasses; ++c) {
        expected_grads.push_back((std::exp(row[c] - row[0]) / sum - (c == t ? 1 : 0)) / 8);
      }
    }
    // The logits around 500 are rounded to multiples of 500 eps before anything is computed.
    test::expect_near(losses.values(), expected_losses, 100 * tolerance, "loss");
    test::expect_near(grads.values(), expected_grads, 10 * tolerance, "gradient");
  }
}

TEST(CrossEntropy, RefusesTargetsOutsideAndSaysWhich) {
  const auto device = make_device("cpu");
  Array logits({2, 3}), target({2}, DType::i64), log_probs({2, 3}), losses({2});
  for (const double bad : {3.0, -1.0}) {
    target.set({1, bad});
    try {
      device->kernels().cross_entropy(logits, target, std::nullopt, log_probs, losses);
      FAIL() << "did not throw";
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find("target[1] expected 0 to 2, got"), std::string::npos)
          << error.what();
    }
    EXPECT_THROW(device->kernels().cross_entropy_backward(log_probs, target, std::nullopt, losses, logits),
                 UsageError);
  }
}

const std::vector<double> kStart = {1.0, -1.0, 0.5, 2.0, -0.25, 0.0};
const std::vector<std::vector<double>> kGrads = {{0.1, -0.2, 0.3, 0.0, 1.0, -1.0},
                                                 {0.2, 0.1, -0.3, 0.5, 0.0, 1e-4},
                                                 {-0.1, 0.4, 0.2, 0.25, -2.0, 0.3},
                                                 {0.0, 0.0, 0.0, 0.0, 0.0, 0.0},
                                                 {1.0, -1.0, 1.0, -1.0, 1.0, -1.0}};

/// One six-element parameter with its state.
struct Parameter {
  explicit Parameter(DType dtype)
      : param({6}, dtype), grad({6}, dtype), momentum({6}, dtype), variance({6}, dtype) {
    param.set(kStart);
    momentum.set(std::vector<double>(6, 0.0));
    variance.set(std::vector<double>(6, 0.0));
  }
  OptimizerSlot slot() const { return {param, grad, momentum, variance}; }
  Array param, grad, momentum, variance;
};

std::vector<double> run_sgd(SgdStep step, DType dtype) {
  const auto device = make_device("cpu");
  Parameter p(dtype);
  for (std::size_t i = 0; i < kGrads.size(); ++i) {
    p.grad.set(kGrads[i]);
    step.first_step = i == 0;
    const OptimizerSlot slot = p.slot();
    device->kernels().sgd({&slot, 1}, step);
  }
  return p.param.values();
}

std::vector<double> run_adamw(AdamWStep step, DType dtype) {
  const auto device = make_device("cpu");
  Parameter p(dtype);
  for (std::size_t i = 0; i < kGrads.size(); ++i) {
    p.grad.set(kGrads[i]);
    step.step = static_cast<std::int64_t>(i) + 1;
    const OptimizerSlot slot = p.slot();
    device->kernels().adamw({&slot, 1}, step);
  }
  return p.param.values();
}

// The expected values are PyTorch's after five steps.
TEST(Sgd, MatchesPyTorch) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    test::expect_near(run_sgd({.lr = 0.1}, dtype),
                      {0.8799999952316284, -0.9299999475479126, 0.3799999952316284, 2.0250000953674316, -0.25,
                       0.16999000310897827},
                      1e-6, "sgd lr=0.1");
    test::expect_near(run_sgd({.lr = 0.1, .momentum = 0.9, .dampening = 0.1, .weight_decay = 0.01}, dtype),
                      {0.8195942640304565, -0.9445090293884277, 0.32541924715042114, 1.8502874374389648,
                       -0.25772804021835327, 0.42485713958740234},
                      1e-6, "sgd lr=0.1 momentum=0.9 dampening=0.1 weight_decay=0.01");
    test::expect_near(run_sgd({.lr = 0.1, .momentum = 0.9, .nesterov = true}, dtype),
                      {0.7156320214271545, -0.8947992324829102, 0.22350528836250305, 1.899269938468933,
                       -0.22075895965099335, 0.5553479790687561},
                      1e-6, "sgd lr=0.1 momentum=0.9 nesterov");
  }
}

TEST(AdamW, MatchesPyTorch) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    test::expect_near(run_adamw({.lr = 0.01}, dtype),
                      {0.9662245512008667, -0.9915174841880798, 0.48035967350006104, 1.9790680408477783,
                       -0.2604652941226959, 0.027710873633623123},
                      1e-6, "adamw lr=0.01");
    test::expect_near(
        run_adamw({.lr = 0.01, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.1}, dtype),
        {0.9622905850410461, -0.9879456162452698, 0.4781809449195862, 1.971016526222229, -0.25788387656211853,
         0.026085594668984413},
        1e-6, "adamw lr=0.01 betas=0.8,0.95 eps=1e-6 weight_decay=0.1");
  }
}

TEST(Sgd, RefusesStateThatDoesNotFit) {
  const auto device = make_device("cpu");
  Array param({6}), grad({5});
  const OptimizerSlot wrong{param, grad, {}, {}}, stateless{param, param, {}, {}};
  EXPECT_THROW(device->kernels().sgd({&wrong, 1}, {.lr = 1}), UsageError);
  EXPECT_THROW(device->kernels().sgd({&stateless, 1}, {.lr = 1, .momentum = 0.9}), UsageError);
  EXPECT_THROW(device->kernels().adamw({&stateless, 1}, {}), UsageError);
}

}  // namespace
}  // namespace dtrain
