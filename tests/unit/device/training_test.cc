// What losses and optimizers refuse.
#include <gtest/gtest.h>

#include <string>

#include "runtime/base/error.h"
#include "tests/unit/device/array.h"

namespace dtrain {
namespace {

using test::Array;

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
