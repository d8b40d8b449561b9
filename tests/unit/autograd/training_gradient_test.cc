// Losses, norms, attention, embedding and recurrent cells: gradients of both orders against differences, and
// what they refuse.
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/autograd/ops/attention.h"
#include "runtime/autograd/ops/embedding.h"
#include "runtime/autograd/ops/losses.h"
#include "runtime/autograd/ops/norms.h"
#include "runtime/autograd/ops/recurrent.h"
#include "runtime/base/error.h"
#include "tests/unit/autograd/grad_check.h"

namespace dtrain {
namespace {

using Inputs = std::vector<Tensor>;
using test::cpu;
using test::random_f64;

void expect_both(const test::Function& f, const Inputs& inputs) {
  test::expect_gradients(f, inputs);
  test::expect_second_gradients(f, inputs);
}

TEST(TrainingGradients, Losses) {
  for (const LossReduction how : {LossReduction::mean, LossReduction::sum, LossReduction::none}) {
    expect_both([how](const Inputs& x) { return binary_cross_entropy(x[0], x[1], how); },
                {random_f64({2, 3}, 1, 0.1, 0.9), random_f64({2, 3}, 2, 0, 1)});
    expect_both([how](const Inputs& x) { return binary_cross_entropy_with_logits(x[0], x[1], how); },
                {random_f64({2, 3}, 1, -3, 3), random_f64({2, 3}, 2, 0, 1)});
    expect_both([how](const Inputs& x) { return l1_loss(x[0], x[1], how); },
                {random_f64({2, 3}, 1), random_f64({2, 3}, 2)});
    expect_both([how](const Inputs& x) { return smooth_l1_loss(x[0], x[1], how, 0.4); },
                {random_f64({2, 3}, 1), random_f64({2, 3}, 2)});
  }
}

TEST(TrainingGradients, Norms) {
  expect_both([](const Inputs& x) { return layer_norm(x[0], {4}, x[1], x[2]); },
              {random_f64({2, 3, 4}, 1), random_f64({4}, 2), random_f64({4}, 3)});
  expect_both(
      [](const Inputs& x) {
        return layer_norm(x[0], {3, 2}, {}, {}, 0.1);
      },
      {random_f64({2, 3, 2}, 1)});
  expect_both([](const Inputs& x) { return rms_norm(x[0], {4}, x[1], 1e-3); },
              {random_f64({3, 4}, 1), random_f64({4}, 2)});
}

TEST(TrainingGradients, Attention) {
  expect_both(
      [](const Inputs& x) { return scaled_dot_product_attention(x[0], x[1], x[2], x[3]); },
      {random_f64({2, 2, 3}, 1), random_f64({2, 4, 3}, 2), random_f64({2, 4, 2}, 3), random_f64({2, 4}, 4)});
  expect_both(
      [](const Inputs& x) { return scaled_dot_product_attention(x[0], x[1], x[2], {}, {.causal = true}); },
      {random_f64({3, 2}, 1), random_f64({3, 2}, 2), random_f64({3, 2}, 3)});
}

TEST(TrainingGradients, Embedding) {
  const Tensor index = Tensor::from_data({std::int64_t{2}, std::int64_t{0}, std::int64_t{2}}, {3, 1}, cpu());
  expect_both([&](const Inputs& x) { return square(embedding(index, x[0])); }, {random_f64({4, 2}, 1)});
  Tensor weight = random_f64({4, 2}, 1);
  weight.set_requires_grad(true);
  sum(embedding(index.to(DType::i32), weight, 2)).backward();
  EXPECT_EQ(weight.grad().to_vector<double>(), (std::vector<double>{1, 1, 0, 0, 0, 0, 0, 0}));
}

TEST(TrainingGradients, RecurrentCells) {
  const auto inputs = [](std::int64_t gates) {
    return Inputs{random_f64({2, gates * 3}, 1), random_f64({2, 3}, 2), random_f64({gates * 3, 3}, 3),
                  random_f64({gates * 3}, 4), random_f64({2, 3}, 5)};
  };
  expect_both(
      [](const Inputs& x) {
        const LstmState after = lstm_cell(x[0], {x[1], x[4]}, x[2], x[3]);
        return after.h * after.c;
      },
      inputs(4));
  expect_both([](const Inputs& x) { return gru_cell(x[0], x[1], x[2], x[3]); }, inputs(3));
  expect_both([](const Inputs& x) { return rnn_tanh_cell(x[0], x[1], x[2], x[3]); }, inputs(1));
  expect_both([](const Inputs& x) { return rnn_relu_cell(x[0], x[1], x[2], x[3]); }, inputs(1));
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
