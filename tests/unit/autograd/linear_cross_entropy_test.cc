// linear_cross_entropy against linear and cross_entropy of all logits at once.
#include "runtime/autograd/ops/linear_cross_entropy.h"

#include <gtest/gtest.h>

#include <cmath>

#include "runtime/autograd/autocast.h"
#include "runtime/autograd/gradients.h"
#include "runtime/autograd/ops.h"
#include "runtime/base/error.h"
#include "tests/unit/autograd/grad_check.h"

namespace dtrain {
namespace {

using test::cpu;
using test::random_f64;

constexpr std::int64_t kRows = 70, kWidth = 6, kWords = 11;

struct Found {
  double loss = 0;
  std::vector<double> grad_x, grad_weight;
};

Tensor targets(std::int64_t ignored_from = kRows) {
  std::vector<std::int64_t> values;
  for (std::int64_t i = 0; i < kRows; ++i) values.push_back(i >= ignored_from ? -1 : i * 5 % kWords);
  return Tensor::from_data(values, {kRows}, cpu());
}

/// The gradients of 3 · loss, to see that backward scales them, added to what there is already if `twice`.
template <class Loss>
Found run(DType dtype, bool twice, const Loss& loss_of) {
  Tensor x = random_f64({kRows, kWidth}, 1).to(dtype).detach();
  Tensor weight = random_f64({kWords, kWidth}, 2).to(dtype).detach();
  x.set_requires_grad(true);
  weight.set_requires_grad(true);
  Found found;
  for (int i = 0; i < (twice ? 2 : 1); ++i) {
    const Tensor loss = loss_of(x, weight);
    found.loss = loss.item();
    mul(loss, 3.0).backward();
  }
  found.grad_x = x.grad().to(DType::f64).to_vector<double>();
  found.grad_weight = weight.grad().to(DType::f64).to_vector<double>();
  return found;
}

void expect_near(const std::vector<double>& a, const std::vector<double>& b, double tolerance,
                 const char* what) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], tolerance) << what << " " << i;
}

void expect_agrees(DType dtype, const Tensor& target, const LinearCrossEntropyOptions& options,
                   double tolerance, bool twice = false) {
  const Found apart = run(dtype, twice, [&](const Tensor& x, const Tensor& weight) {
    return cross_entropy(linear(x, weight, {}), target, options.reduction, options.ignore_index);
  });
  const Found fused = run(dtype, twice, [&](const Tensor& x, const Tensor& weight) {
    return linear_cross_entropy(x, weight, target, options);
  });
  EXPECT_NEAR(fused.loss, apart.loss, tolerance * std::abs(apart.loss));
  expect_near(fused.grad_x, apart.grad_x, tolerance, "x");
  expect_near(fused.grad_weight, apart.grad_weight, tolerance, "weight");
}

TEST(LinearCrossEntropy, GivesWhatItsPartsGive) {
  for (const std::int64_t rows_at_once : {0, 1, 32, 33, 70, 1000}) {
    expect_agrees(DType::f64, targets(), {.rows_at_once = rows_at_once}, 1e-12);
    expect_agrees(DType::f64, targets(), {.reduction = LossReduction::sum, .rows_at_once = rows_at_once},
                  1e-12);
    expect_agrees(DType::f32, targets(), {.rows_at_once = rows_at_once}, 1e-5);
  }
  expect_agrees(DType::f64, targets(), {.rows_at_once = 32}, 1e-12, true);
}

TEST(LinearCrossEntropy, LeavesIgnoredRowsOut) {
  for (const std::int64_t from : {50, 1}) {
    for (const LossReduction reduction : {LossReduction::mean, LossReduction::sum}) {
      expect_agrees(DType::f64, targets(from),
                    {.reduction = reduction, .ignore_index = -1, .rows_at_once = 16}, 1e-12);
    }
  }
  const Tensor x = random_f64({kRows, kWidth}, 1), weight = random_f64({kWords, kWidth}, 2);
  EXPECT_TRUE(std::isnan(linear_cross_entropy(x, weight, targets(0), {.ignore_index = -1}).item()));
  EXPECT_THROW(linear_cross_entropy(x, weight, targets(50)), UsageError) << "-1 is no class";
}

TEST(LinearCrossEntropy, TakesOperandsInTheLowPrecision) {
  LowPrecisionWeights weights;
  const Autocast bf16(Precision::bf16, weights);
  expect_agrees(DType::f32, targets(), {.rows_at_once = 32}, 0.03);  // roundings to 8 bits
}

TEST(LinearCrossEntropy, ComputesOnlyTheGradientsThatAreWanted) {
  Tensor x = random_f64({kRows, kWidth}, 1), weight = random_f64({kWords, kWidth}, 2);
  EXPECT_FALSE(linear_cross_entropy(x, weight, targets()).requires_grad());
  const std::size_t before = cpu()->allocated_bytes();
  x.set_requires_grad(true);
  const Tensor loss = linear_cross_entropy(x, weight, targets());
  EXPECT_LE(cpu()->allocated_bytes() - before, 8 * (kRows * kWidth + 64)) << "a gradient of x and a number";
  loss.backward();
  EXPECT_TRUE(x.grad().defined());
  EXPECT_FALSE(weight.grad().defined());
}

TEST(LinearCrossEntropy, HasNoGradientsOfGradients) {
  Tensor x = random_f64({kRows, kWidth}, 1), weight = random_f64({kWords, kWidth}, 2);
  x.set_requires_grad(true);
  const std::vector<Tensor> of = {x};
  const Tensor first =
      gradients(linear_cross_entropy(x, weight, targets()), of, {}, {.create_graph = true})[0];
  EXPECT_THROW(sum(square(first)).backward(), UsageError);
}

TEST(LinearCrossEntropy, RefusesWhatDoesNotFit) {
  const Tensor x = random_f64({kRows, kWidth}, 1);
  EXPECT_THROW(linear_cross_entropy(x, random_f64({kWords, kWidth + 1}, 2), targets()), UsageError);
  EXPECT_THROW(linear_cross_entropy(x, random_f64({kWords, kWidth}, 2), targets().to(DType::i32)),
               UsageError);
  EXPECT_THROW(
      linear_cross_entropy(x, random_f64({kWords, kWidth}, 2), targets(), {.reduction = LossReduction::none}),
      UsageError);
}

/// As cross_entropy, and PyTorch: the mean of nothing is NaN, and nothing moves.
TEST(LinearCrossEntropy, WithoutARowThatCountsHasGradientsOfZero) {
  const Found found = run(DType::f32, false, [](const Tensor& x, const Tensor& weight) {
    return linear_cross_entropy(x, weight, targets(0), {.ignore_index = -1});
  });
  EXPECT_TRUE(std::isnan(found.loss));
  EXPECT_EQ(found.grad_x, std::vector<double>(kRows * kWidth, 0.0));
  EXPECT_EQ(found.grad_weight, std::vector<double>(kWords * kWidth, 0.0));
}

}  // namespace
}  // namespace dtrain
