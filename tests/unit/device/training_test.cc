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
    EXPECT_THROW(device->kernels().cross_entropy_slopes(logits, target, std::nullopt, losses, log_probs),
                 UsageError);
  }
}

// Its slopes are those of cross_entropy_backward for a gradient of 1, in any dtype it writes; so are losses.
TEST(CrossEntropySlopes, AreWhatItsPartsGive) {
  const auto device = make_device("cpu");
  Generator generator(3);
  for (const DType dtype : {DType::f32, DType::f64}) {
    const double bound = dtype == DType::f32 ? 1e-6 : 1e-14;
    const Array logits = Array::random({6, 101}, generator, dtype);
    Array target({6}, DType::i64), one({6}, dtype), log_probs({6, 101}, dtype), losses({6}, dtype),
        slopes({6, 101}, dtype), work({6, 101}, dtype), found({6}, dtype), rounded({6, 101}, DType::bf16);
    target.set({0, 100, 50, -3, 7, 8});
    one.set({1, 1, 1, 1, 1, 1});
    Kernels& kernels = device->kernels();
    kernels.cross_entropy(logits, target, -3, log_probs, losses);
    kernels.cross_entropy_backward(log_probs, target, -3, one, slopes);
    const auto expect = [&](const Array& got, const Array& expected, double room) {
      const auto a = got.values(), b = expected.values();
      for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], room) << i;
    };
    const auto run = [&](const View& to) {
      kernels.copy(logits, work);
      kernels.cross_entropy_slopes(work, target, -3, found, to);
      expect(found, losses, 4 * bound);
    };
    run(View{});
    run(work);
    expect(work, slopes, bound);
    if (dtype == DType::f64) continue;
    run(rounded);
    expect(rounded, slopes, 1.0 / 256);
  }
}

TEST(CrossEntropySlopes, RefuseDtypesThatTheyCannotHave) {
  const auto device = make_device("cpu");
  Array logits({2, 3}), low({2, 3}, DType::bf16), wide({2, 3}, DType::f64), target({2}, DType::i64),
      losses({2}), low_losses({2}, DType::bf16);
  Kernels& kernels = device->kernels();
  EXPECT_THROW(kernels.cross_entropy_slopes(low, target, std::nullopt, low_losses, low), UsageError);
  EXPECT_THROW(kernels.cross_entropy_slopes(logits, target, std::nullopt, losses, wide), UsageError);
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
