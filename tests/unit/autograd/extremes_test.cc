// Labels that are far out, extents of 0, layouts of gradients, and arguments that change before backward,
// against what PyTorch makes of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "runtime/autograd/ops.h"
#include "runtime/autograd/ops/attention.h"
#include "runtime/autograd/ops/embedding.h"
#include "runtime/autograd/ops/norms.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

using Floats = std::vector<float>;
using Ints = std::vector<std::int64_t>;

constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

class Extremes : public testing::Test {
 protected:
  std::shared_ptr<Device> device_ = make_device("cpu");
  Tensor leaf(const Dims& shape) {
    Generator generator(shape.product() + 1);
    Tensor tensor = Tensor::randn(shape, generator, device_);
    tensor.set_requires_grad(true);
    return tensor;
  }
  Tensor ints(const Ints& values) {
    return Tensor::from_data(values, {static_cast<std::int64_t>(values.size())}, device_);
  }
  static bool all_zero(const Tensor& x) {
    const auto values = x.to_vector<float>();
    return std::all_of(values.begin(), values.end(), [](float value) { return value == 0; });
  }
};

TEST_F(Extremes, NoLabelMeansThatNothingIsIgnored) {
  const Tensor logits = leaf({2, 3}), one = logits.slice(0, 1, 2);
  for (const std::int64_t label : {kLeast, kMost, std::int64_t{-1}, std::int64_t{3}}) {
    EXPECT_THROW(cross_entropy(logits, ints({label, 1})), UsageError) << label;
    // Named, it is ignored like any other.
    const Tensor loss = cross_entropy(logits, ints({label, 1}), LossReduction::mean, label);
    EXPECT_EQ(loss.item(), cross_entropy(one, ints({1})).item()) << label;
  }
}

TEST_F(Extremes, IndexesOutsideAreRefused) {
  const Tensor x = leaf({2, 3});
  for (const std::int64_t index : {kLeast, kMost, std::int64_t{-1}, std::int64_t{3}}) {
    const Tensor which = ints({index});
    EXPECT_THROW(x.index_select(1, which), UsageError) << index;
    EXPECT_THROW(gather(x, 1, which.unsqueeze(0)), UsageError) << index;
    EXPECT_THROW(scatter_add(x, 1, which.unsqueeze(0), x), UsageError) << index;
    EXPECT_THROW(embedding(which, x), UsageError) << index;
  }
}

TEST_F(Extremes, APaddingIndexCountsFromTheEndToo) {
  Tensor table = leaf({3, 2});
  sum(embedding(ints({2, 0}), table, -1)).backward();
  EXPECT_EQ(table.grad().to_vector<float>(), (Floats{1, 1, 0, 0, 0, 0}));
  EXPECT_THROW(embedding(ints({0}), table, 3), UsageError);
  EXPECT_THROW(embedding(ints({0}), table, kLeast), UsageError);
}

TEST_F(Extremes, WhereNeedsTheSidesItTookAlone) {
  Tensor a = leaf({4}), b = leaf({4}), chosen = Tensor::from_data(Floats{1, 0, 2, 0}, {4}, device_);
  const Tensor y = where(chosen, a, b);
  {
    const NoGrad no_grad;
    for (Tensor* changed : {&a, &b, &chosen}) changed->fill(5);
  }
  sum(y).backward();
  EXPECT_EQ(a.grad().to_vector<float>(), (Floats{1, 0, 1, 0}));
  EXPECT_EQ(b.grad().to_vector<float>(), (Floats{0, 1, 0, 1}));
}

TEST_F(Extremes, BackwardNeedsNoMoreThanItsGradientsDo) {
  // The gradient of a weight does not need the weight, nor that of an input the input.
  const Tensor x = leaf({2, 4}), w = leaf({4}), image = leaf({1, 1, 4, 4}), kernel = leaf({1, 1, 3, 3}),
               other = leaf({1, 1, 3, 3});
  struct Change {
    const char* name;
    Tensor y, changed;
  };
  for (const Change& change :
       {Change{"layer_norm", layer_norm(x.detach(), {4}, w, {}), w},
        Change{"rms_norm", rms_norm(x.detach(), {4}, w, 1e-5), w},
        Change{"fused weight", conv2d_relu_pool2d(image.detach(), kernel, {}, {}, {}), kernel},
        Change{"fused input", conv2d_relu_pool2d(image, other.detach(), {}, {}, {}), image}}) {
    {
      const NoGrad no_grad;
      Tensor(change.changed).fill(1);
    }
    EXPECT_NO_THROW(sum(change.y).backward()) << change.name;
  }
  const Tensor both = layer_norm(x, {4}, w, {});
  {
    const NoGrad no_grad;
    Tensor(w).fill(2);
  }
  EXPECT_THROW(sum(both).backward(), UsageError);
}

TEST_F(Extremes, NothingMayBeFilledWhereItIsBroadcast) {
  EXPECT_NO_THROW(Tensor::zeros({1, 0}, device_).expand({3, 0}).fill(1));
  EXPECT_THROW(Tensor::zeros({1, 2}, device_).expand({3, 2}).fill(1), UsageError);
}

TEST_F(Extremes, AGradientOfEveryLayoutGoesThroughMatmul) {
  const Tensor a = leaf({1, 5, 64}), b = leaf({5, 64, 17});
  const Tensor y = matmul(a, b), wide = leaf({5, 9, 34}).detach();
  // Every second row of nine and column of 33: the strides interleave.
  for (const Tensor& grad : {wide.slice(1, 0, 9, 2).slice(2, 0, 17), wide.slice(1, 0, 5).slice(2, 0, 33, 2),
                             wide.permute({0, 2, 1}).slice(1, 0, 33, 2).slice(2, 0, 9, 2).permute({0, 2, 1}),
                             wide.slice(0, 0, 1).slice(1, 0, 1).slice(2, 0, 17).expand({5, 5, 17})}) {
    std::vector<Floats> gradients;
    for (const Tensor& seed : {grad.clone(), grad}) {
      Tensor left = a, right = b;
      left.zero_grad();
      right.zero_grad();
      y.backward(seed, {.retain_graph = true});
      gradients.push_back(left.grad().to_vector<float>());
      gradients.push_back(right.grad().to_vector<float>());
    }
    for (std::size_t i = 0; i < gradients[0].size(); ++i) EXPECT_NEAR(gradients[2][i], gradients[0][i], 1e-4);
    for (std::size_t i = 0; i < gradients[1].size(); ++i) EXPECT_NEAR(gradients[3][i], gradients[1][i], 1e-4);
  }
}

TEST_F(Extremes, AConvolutionOfNoChannelsHasNone) {
  for (const bool with_pool : {false, true}) {
    const Tensor x = leaf({2, 0, 6, 6}), w = leaf({3, 0, 3, 3}), bias = leaf({3});
    const Tensor y = with_pool ? conv2d_relu_pool2d(x, w, bias, {}, {}) : conv2d(x, w, bias);
    EXPECT_EQ(y.shape(), with_pool ? (Dims{2, 0, 2, 2}) : (Dims{2, 0, 4, 4}));
    y.backward(Tensor::zeros(y.shape(), device_));
    EXPECT_EQ(x.grad().shape(), x.shape());
    EXPECT_EQ(w.grad().shape(), w.shape());
    EXPECT_TRUE(all_zero(bias.grad()));
  }
}

TEST_F(Extremes, AConvolutionOfPaddingAloneIsItsBias) {
  const Tensor x = leaf({2, 3, 0, 2}), w = leaf({4, 3, 1, 1}), bias = leaf({4});
  const Tensor y = conv2d(x, w, bias, {1, 1, 2, 1});
  EXPECT_EQ(y.shape(), (Dims{2, 4, 4, 4}));
  y.backward(Tensor::ones(y.shape(), device_));
  EXPECT_TRUE(all_zero(w.grad()));
  EXPECT_EQ(bias.grad().to_vector<float>(), Floats(4, 32));
}

TEST_F(Extremes, AnEmptyBatchHasNoStatistics) {
  const Tensor x = leaf({0, 3, 2, 2}), weight = leaf({3}), bias = leaf({3}), residual = leaf({0, 3, 2, 2});
  const Tensor mean = Tensor::full({3}, 2, device_), var = Tensor::full({3}, 4, device_);
  const Tensor y = batch_norm(x, weight, bias, mean, var, {}, true, residual);
  EXPECT_EQ(y.shape(), x.shape());
  y.backward(Tensor::zeros(y.shape(), device_));
  EXPECT_TRUE(all_zero(weight.grad()) && all_zero(bias.grad()));
  EXPECT_EQ(x.grad().shape(), x.shape());
  EXPECT_EQ(mean.to_vector<float>(), Floats(3, 2));
  EXPECT_EQ(var.to_vector<float>(), Floats(3, 4));
  // One value a channel has a mean, but no variance.
  EXPECT_THROW(batch_norm(leaf({1, 3, 1, 1}), weight, bias, mean, var, {}, true), UsageError);
}

TEST_F(Extremes, OutputPaddingMayExceedAStrideBelowTheDilation) {
  // A place beyond what the kernel reaches from the last input: nothing but the bias.
  const Tensor x = leaf({1, 1, 1, 2}), w = leaf({1, 1, 1, 2}), bias = leaf({1});
  const Tensor y = conv_transpose2d(x, w, bias, {1, 1, 0, 0, 1, 2}, 0, 1);
  const Floats xs = x.to_vector<float>(), ws = w.to_vector<float>(), got = y.to_vector<float>();
  const float b = bias.to_vector<float>()[0];
  ASSERT_EQ(y.shape(), (Dims{1, 1, 1, 5}));
  const Floats expected{xs[0] * ws[0] + b, xs[1] * ws[0] + b, xs[0] * ws[1] + b, xs[1] * ws[1] + b, b};
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-6) << i;
  sum(y).backward();
  EXPECT_NEAR(x.grad().to_vector<float>()[1], ws[0] + ws[1], 1e-6);
}

TEST_F(Extremes, CausalAttentionCountsBeyondTheDigitsOfBf16) {
  const std::int64_t length = 300;
  const Tensor ones = Tensor::ones({length, 1}, device_, DType::bf16);
  const Tensor value = Tensor::eye(length, length, device_, DType::bf16);
  const Floats shares =
      scaled_dot_product_attention(ones, ones, value, {}, {.causal = true}).to_vector<float>();
  const auto seen = [&](std::int64_t query, std::int64_t key) {
    return shares[static_cast<std::size_t>(query * length + key)] > 0;
  };
  for (std::int64_t query = 256; query < length; ++query) {
    EXPECT_TRUE(seen(query, query)) << query;
    EXPECT_FALSE(query + 1 < length && seen(query, query + 1)) << query;
  }
}

TEST_F(Extremes, GradientsOfRootsAreFiniteWhereTheirDoubleIsNot) {
  const auto gradient = [&](Tensor (*root)(const Tensor&), float at, float from_above) {
    Tensor x = Tensor::full({1}, at, device_);
    x.set_requires_grad(true);
    root(x).backward(Tensor::full({1}, from_above, device_));
    return x.grad().to_vector<float>().front();
  };
  EXPECT_EQ(gradient(&sqrt, 0x1p-20F, 0x1.8p118F), 0x1.8p127F);
  EXPECT_EQ(gradient(&rsqrt, 0x1p-84F, 7), -0x1.cp127F);
}

// exp(x), where 1 / (1 + exp(-x)) is 0 already.
TEST_F(Extremes, SoftplusHasASlopeFarBelowZero) {
  Tensor x = Tensor::full({1}, -89, device_);
  x.set_requires_grad(true);
  softplus(x).backward(Tensor::full({1}, 0x1p100, device_));
  const double expected = std::exp(-89.0) * 0x1p100;
  EXPECT_NEAR(x.grad().to_vector<float>().front(), expected, 1e-5 * expected);
}

TEST_F(Extremes, NoGradientOnTheBoundsOfClamp) {
  const Tensor x =
      Tensor::from_data(Floats{-2, -1, 0, 1, -std::numeric_limits<float>::infinity()}, {5}, device_);
  Tensor both = x.clone(), above = x.clone();
  for (Tensor* leaf : {&both, &above}) leaf->set_requires_grad(true);
  sum(clamp(both, -1, 1)).backward();
  sum(clamp(above, std::nullopt, 1)).backward();
  EXPECT_EQ(both.grad().to_vector<float>(), (Floats{0, 0, 1, 0, 0}));
  EXPECT_EQ(above.grad().to_vector<float>(), (Floats{1, 1, 1, 0, 1}));
}

}  // namespace
}  // namespace dtrain
