// Which operation runs in which precision, that low precision stays close to float32, and float16's limits.
#include "runtime/autograd/autocast.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "runtime/autograd/ops.h"
#include "runtime/autograd/ops/patches.h"
#include "runtime/base/error.h"
#include "runtime/base/random.h"

namespace dtrain {
namespace {

class AutocastTest : public ::testing::Test {
 protected:
  Tensor random(const Dims& shape, float scale = 1) {
    return Tensor::rand(shape, generator_, device_, -scale, scale);
  }
  Tensor leaf(const Dims& shape, float scale = 1) {
    Tensor tensor = random(shape, scale);
    tensor.set_requires_grad(true);
    return tensor;
  }
  std::shared_ptr<Device> device_ = make_device("cpu");
  Generator generator_{5};
  LowPrecisionWeights weights_;
};

TEST_F(AutocastTest, FollowsTheOperationList) {
  const Tensor x = random({2, 16, 6, 6}), w = random({8, 16, 3, 3}), channels = Tensor::ones({8}, device_);
  const Tensor rows = random({4, 32}), matrix = random({10, 32});
  EXPECT_EQ(conv2d(x, w, {}).dtype(), DType::f32);
  const Autocast autocast(Precision::bf16, weights_);
  const Tensor y = conv2d(x, w, channels);
  EXPECT_EQ(y.dtype(), DType::bf16);
  EXPECT_EQ(batch_norm(y, channels, channels, {}, {}, {}, true).dtype(), DType::bf16);
  EXPECT_EQ(relu(y).dtype(), DType::bf16);
  EXPECT_EQ(prelu(y, channels).dtype(), DType::bf16);
  EXPECT_EQ(conv_transpose2d(x, random({16, 8, 3, 3}), channels).dtype(), DType::bf16);
  EXPECT_EQ(conv1d(random({2, 16, 6}), random({8, 16, 3}), channels).dtype(), DType::bf16);
  EXPECT_EQ(adaptive_avg_pool2d(y, 1, 1).dtype(), DType::f32);
  EXPECT_EQ(linear(rows, matrix, {}).dtype(), DType::bf16);
  EXPECT_EQ(matmul(rows, matrix.transpose(0, 1)).dtype(), DType::bf16);
  const Tensor target = Tensor::zeros({4}, device_, DType::i64);
  EXPECT_EQ(cross_entropy(linear(rows, matrix, {}), target).dtype(), DType::f32);
  EXPECT_EQ(conv2d(x.to(DType::f64), w.to(DType::f64), {}).dtype(), DType::f64);
}

// As where a residual stream in float32 gets what a layer computed.
TEST_F(AutocastTest, OperandsOfTwoPrecisionsMeetInFloat32) {
  Tensor stream = random({4, 10});
  stream.set_requires_grad(true);
  Tensor weight = random({10, 10});
  weight.set_requires_grad(true);
  const Autocast autocast(Precision::bf16, weights_);
  const Tensor computed = linear(stream, weight, {});
  ASSERT_EQ(computed.dtype(), DType::bf16);
  for (const Tensor& result :
       {add(stream, computed), sub(computed, stream), mul(stream, computed),
        div(computed, add(square(stream), 1.0)), maximum(stream, computed), cat({computed, stream}, 0),
        stack({stream, computed}, 0), where(stream > computed, stream, computed),
        where(computed, computed, stream), silu_mul(computed, stream), pow(square(stream), computed)})
    EXPECT_EQ(result.dtype(), DType::f32);
  EXPECT_EQ(cat({computed, computed}, 0).dtype(), DType::bf16);
  sum(add(stream, computed)).backward();
  EXPECT_EQ(stream.grad().dtype(), DType::f32);
  EXPECT_EQ(weight.grad().dtype(), DType::f32);
}

TEST_F(AutocastTest, ImagesOfTwoPrecisionsMeetInFloat32) {
  Tensor images = leaf({2, 4, 8, 8}), shortcut = leaf({2, 8, 8, 8});
  const Tensor w = random({8, 4, 3, 3}), channels = Tensor::ones({8}, device_);
  const Autocast autocast(Precision::bf16, weights_);
  const auto convolve = [&] { return conv2d(images, w, {}, {.pad_h = 1, .pad_w = 1}); };
  const Tensor computed = convolve();
  ASSERT_EQ(computed.dtype(), DType::bf16);
  EXPECT_EQ(pool2d(computed, {.kind = PoolKind::max}).dtype(), DType::bf16);
  const Tensor grid = random({2, 3, 3, 2}).to(DType::bf16);
  EXPECT_EQ(grid_sample(images, grid).dtype(), DType::f32);
  for (const bool training : {true, false}) {
    const Tensor mean = Tensor::zeros({8}, device_), var = Tensor::ones({8}, device_);
    const Tensor y = batch_norm(convolve(), channels, channels, mean, var, {}, training, shortcut);
    EXPECT_EQ(y.dtype(), DType::f32);
    const Tensor apart = add(batch_norm(computed, channels, channels, mean, var, {}, training), shortcut);
    const auto one = y.to_vector<float>(), other = apart.to_vector<float>();
    for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(one[i], other[i], 0.03);
    sum(y).backward();
  }
  EXPECT_EQ(images.grad().dtype(), DType::f32);
  EXPECT_EQ(shortcut.grad().to_vector<float>(), std::vector<float>(shortcut.numel(), 2.0F));
}

// As in PyTorch the place keeps its precision; what is computed there is rounded once.
TEST_F(AutocastTest, InPlaceKeepsThePrecisionOfThePlace) {
  const Tensor low = random({4, 10}).to(DType::bf16), full = random({4, 10});
  const Autocast autocast(Precision::bf16, weights_);
  Tensor a = low.clone(), b = full.clone();
  a += full;
  b -= low;
  EXPECT_EQ(a.to_vector<float>(), add(low.to(DType::f32), full).to(DType::bf16).to_vector<float>());
  EXPECT_EQ(b.to_vector<float>(), sub(full, low.to(DType::f32)).to_vector<float>());
  EXPECT_EQ(a.dtype(), DType::bf16);
  EXPECT_EQ(b.dtype(), DType::f32);
  EXPECT_EQ((low < full).to(DType::f32).to_vector<float>(),
            (low.to(DType::f32) < full).to(DType::f32).to_vector<float>());
}

TEST_F(AutocastTest, GuardsNestAndEnd) {
  EXPECT_FALSE(autocast_enabled());
  {
    const Autocast outer(Precision::bf16, weights_);
    {
      const Autocast inner(Precision::fp32, weights_);
      EXPECT_FALSE(autocast_enabled());
    }
    EXPECT_TRUE(autocast_enabled());
  }
  EXPECT_FALSE(autocast_enabled());
}

/// |got - expected| / |expected| as vectors.
double relative_error(const std::vector<double>& got, const std::vector<double>& expected) {
  double error = 0, size = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    error += (got[i] - expected[i]) * (got[i] - expected[i]);
    size += expected[i] * expected[i];
  }
  return std::sqrt(error / size);
}

/// A small network of everything on the lists; gradients of all its parameters.
struct Net {
  Tensor w, b, gamma, beta, w1, fc, bias;
  std::vector<Tensor> all() const { return {w, b, gamma, beta, w1, fc, bias}; }
  Tensor loss(const Tensor& x, const Tensor& target) const {
    BatchNormRule rule;
    rule.activation = Activation::relu;
    const Tensor y = batch_norm(conv2d(x, w, b, {1, 1, 1, 1}), gamma, beta, {}, {}, rule, true);
    const Tensor z = batch_norm(conv2d(y, w1, {}), gamma, beta, {}, {}, rule, true, y);
    return cross_entropy(linear(flatten(adaptive_avg_pool2d(z, 1, 1)), fc, bias), target);
  }
};

class LowPrecision : public AutocastTest, public ::testing::WithParamInterface<Precision> {};

TEST_P(LowPrecision, StaysCloseAndGivesFloat32Gradients) {
  const Net net{leaf({16, 3, 3, 3}, 0.3F),  leaf({16}),          leaf({16}), leaf({16}),
                leaf({16, 16, 1, 1}, 0.3F), leaf({5, 16}, 0.5F), leaf({5})};
  const Tensor x = random({8, 3, 7, 7});
  std::vector<std::int64_t> classes = {0, 1, 2, 3, 4, 0, 1, 2};
  const Tensor target = Tensor::from_data(classes, {8}, device_);
  const Tensor exact = net.loss(x, target);
  exact.backward();
  std::vector<std::vector<double>> expected;
  for (Tensor& parameter : net.all()) {
    expected.push_back(parameter.grad().to_vector<double>());
    parameter.zero_grad();
  }
  const Autocast autocast(GetParam(), weights_);
  const Tensor rough = net.loss(x, target);
  EXPECT_NEAR(rough.item(), exact.item(), 0.02);
  EXPECT_NE(rough.item(), exact.item());
  rough.backward();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const Tensor grad = net.all()[i].grad();
    EXPECT_EQ(grad.dtype(), DType::f32);
    if (i == 1) continue;  // a bias before a batch norm: only rounding
    // A dozen roundings of 2^-9 or 2^-12, and relu gates that flip where an activation is about zero.
    EXPECT_LE(relative_error(grad.to_vector<double>(), expected[i]),
              GetParam() == Precision::bf16 ? 0.1 : 0.02)
        << "parameter " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Precisions, LowPrecision, ::testing::Values(Precision::bf16, Precision::fp16),
                         [](const auto& test) {
                           return std::string(test.param == Precision::bf16 ? "bf16" : "fp16");
                         });

TEST_F(AutocastTest, WeightCopiesFollowTheWeight) {
  Tensor w = random({4, 4});
  const Tensor first = weights_.get(w, DType::bf16), again = weights_.get(w, DType::bf16);
  EXPECT_TRUE(first.shares_storage(again));
  w.fill(3);
  EXPECT_EQ(weights_.get(w, DType::bf16).to_vector<float>()[0], 3);
  EXPECT_NE(first.to_vector<float>()[0], 3);
}

TEST_F(AutocastTest, HalfRoundsAsIeeeSays) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<std::pair<float, float>> cases = {{1.0F, 1.0F},
                                                      {65504.0F, 65504.0F},
                                                      {65519.0F, 65504.0F},
                                                      {65520.0F, infinity},
                                                      {-1e6F, -infinity},
                                                      {1.0F + 0x1p-11F, 1.0F},
                                                      {1.0F + 3 * 0x1p-11F, 1.0F + 0x1p-9F},
                                                      {0x1p-24F, 0x1p-24F},
                                                      {0x1p-25F, 0.0F},
                                                      {0x1.8p-24F, 0x1p-23F},
                                                      {-0x1p-14F, -0x1p-14F},
                                                      {2049.0F, 2048.0F},
                                                      {0.1F, 0.0999755859375F}};
  for (const auto& [from, to] : cases) {
    const Tensor x = Tensor::full({1}, from, device_), y = Tensor::empty({1}, device_);
    device_->kernels().unary(UnaryOp::round_half, x.view(), y.view());
    EXPECT_EQ(y.item(), static_cast<double>(to)) << from;
  }
  const Tensor nan = Tensor::full({1}, std::nan(""), device_), y = Tensor::empty({1}, device_);
  device_->kernels().unary(UnaryOp::round_half, nan.view(), y.view());
  EXPECT_TRUE(std::isnan(y.item()));
}

TEST_F(AutocastTest, EmulatedHalfOverflowsForwardAndBackward) {
  const Tensor x = Tensor::full({1, 2}, 300, device_);
  Tensor w = Tensor::full({1, 2}, 300, device_);
  w.set_requires_grad(true);
  const Autocast autocast(Precision::fp16, weights_);
  const Tensor y = linear(x, w, {});
  EXPECT_TRUE(std::isinf(y.item()));
  y.backward(Tensor::full({1, 1}, 1000, device_));
  EXPECT_TRUE(std::isinf(w.grad().to_vector<double>()[0]));
}

TEST(ParsePrecision, KnowsItsNames) {
  EXPECT_EQ(precision_named("bf16"), Precision::bf16);
  EXPECT_THROW(precision_named("fp8"), UsageError);
}

}  // namespace
}  // namespace dtrain
