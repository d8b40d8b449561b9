// What losses, norms, attention and embedding refuse, and what they make of large and of padded arguments.
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/autograd/ops/attention.h"
#include "runtime/autograd/ops/embedding.h"
#include "runtime/autograd/ops/losses.h"
#include "runtime/autograd/ops/norms.h"
#include "runtime/base/error.h"
#include "tests/unit/autograd/grad_check.h"

namespace dtrain {
namespace {

using test::cpu;
using test::random_f64;

TEST(Embedding, PaddingHasNoGradient) {
  const Tensor index = Tensor::from_data({std::int64_t{2}, std::int64_t{0}, std::int64_t{2}}, {3, 1}, cpu());
  Tensor weight = random_f64({4, 2}, 1);
  weight.set_requires_grad(true);
  sum(embedding(index.to(DType::i32), weight, 2)).backward();
  EXPECT_EQ(weight.grad().to_vector<double>(), (std::vector<double>{1, 1, 0, 0, 0, 0, 0, 0}));
}

TEST(TrainingErrors, NameTheFunctionAndBothSides) {
  const Tensor x = random_f64({2, 3}, 1), other = random_f64({3}, 2);
  EXPECT_THROW(binary_cross_entropy(x, other), UsageError);
  EXPECT_THROW(binary_cross_entropy_with_logits(x, x.to(DType::f32)), UsageError);
  EXPECT_THROW(l1_loss(x, other), UsageError);
  EXPECT_THROW(smooth_l1_loss(x, x, LossReduction::mean, -1), UsageError);
  EXPECT_THROW(layer_norm(x, {2}, {}, {}), UsageError);
  EXPECT_THROW(layer_norm(x, {3}, random_f64({2}, 1), {}), UsageError);
  EXPECT_THROW(rms_norm(x.to(DType::i64), {3}, {}, 0), UsageError);
  EXPECT_THROW(scaled_dot_product_attention(x, x.transpose(0, 1), x), UsageError);
  EXPECT_THROW(embedding(x, x), UsageError);
  EXPECT_THROW(embedding(Tensor::full({1}, 5, cpu(), DType::i64), x), UsageError);
}

// Where a naive formula overflows or loses everything.
TEST(Losses, LogitsMayBeLarge) {
  const Tensor logits = Tensor::from_data({200.0F, -200.0F, 30.0F}, {3}, cpu());
  const Tensor target = Tensor::from_data({0.0F, 1.0F, 1.0F}, {3}, cpu());
  const auto losses =
      binary_cross_entropy_with_logits(logits, target, LossReduction::none).to_vector<double>();
  EXPECT_EQ(losses[0], 200);
  EXPECT_EQ(losses[1], 200);
  EXPECT_NEAR(losses[2] / std::exp(-30.0), 1, 1e-5);
}

}  // namespace
}  // namespace dtrain
