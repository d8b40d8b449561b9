// Values at the edges (NaN, infinities, signed zeros, the smallest numbers, empty arrays) against what
// PyTorch makes of them.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "runtime/autograd/autocast.h"
#include "runtime/autograd/gradients.h"
#include "runtime/autograd/ops.h"
#include "runtime/autograd/ops/indexing.h"
#include "runtime/autograd/ops/joining.h"
#include "runtime/autograd/ops/losses.h"
#include "runtime/autograd/ops/reductions.h"
#include "runtime/autograd/ops/resampling.h"
#include "runtime/base/error.h"
#include "tests/support/slowness.h"

namespace dtrain {
namespace {

using Floats = std::vector<float>;
using Ints = std::vector<std::int64_t>;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class EdgeValues : public testing::Test {
 protected:
  std::shared_ptr<Device> device_ = make_device("cpu");
  Tensor leaf(const Floats& values) { return leaf(values, {static_cast<std::int64_t>(values.size())}); }
  Tensor leaf(const Floats& values, const Dims& shape) {
    Tensor tensor = Tensor::from_data(values, shape, device_);
    tensor.set_requires_grad(true);
    return tensor;
  }
  static Floats gradient_of(const Tensor& leaf, const Tensor& result) {
    result.backward(Tensor::ones(result.shape(), result.shared_device(), result.dtype()));
    return leaf.grad().to_vector<float>();
  }
};

TEST_F(EdgeValues, GradientsOfNanAreSeen) {
  const Tensor x = leaf({kNan, -1, 0, 2});
  EXPECT_EQ(gradient_of(x, relu(x)), (Floats{1, 0, 0, 1}));
  const Tensor a = leaf({kNan, 1, 3, 1, 2}), b = leaf({1, kNan, 2, 1, 3});
  EXPECT_EQ(gradient_of(a, maximum(a, b)), (Floats{1, 1, 1, 0.5F, 0}));
  EXPECT_EQ(b.grad().to_vector<float>(), (Floats{1, 1, 0, 0.5F, 1}));
  const Tensor c = leaf({kNan, 3, 1});
  EXPECT_EQ(gradient_of(c, minimum(c, Tensor::full({}, 2, device_))), (Floats{1, 0, 1}));
}

TEST_F(EdgeValues, AnInfiniteGradientStopsAtTheLoser) {
  const Tensor x = leaf({-1, 4});
  const Tensor root = sqrt(maximum(x, Tensor::zeros({}, device_)));
  EXPECT_EQ(gradient_of(x, root), (Floats{0, 0.25F}));
}

TEST_F(EdgeValues, InfinityStaysInItsWindowsOfAdaptivePooling) {
  Floats values(25, 1.0F);
  values[0] = kInf;
  values[24] = kNan;
  const Tensor x = leaf(values, {1, 1, 5, 5});
  const Floats y = adaptive_avg_pool2d(x, 3, 2).to_vector<float>();
  EXPECT_EQ(y[0], kInf);
  for (const std::size_t i : {1U, 2U, 3U, 4U}) EXPECT_EQ(y[i], 1) << i;
  EXPECT_TRUE(std::isnan(y[5]));
}

/// Places that two windows share get from both: 7 in 3 parts are [0, 3), [2, 5), [4, 7).
TEST_F(EdgeValues, AdaptivePoolingAveragesAndSharesGradients) {
  const Tensor x = leaf({1, 2, 3, 4, 5, 6, 7}, {1, 1, 7, 1});
  EXPECT_EQ(adaptive_avg_pool2d(x, 3, 1).to_vector<float>(), (Floats{2, 4, 6}));
  const float third = 1.0F / 3;
  EXPECT_EQ(gradient_of(x, adaptive_avg_pool2d(x, 3, 1)),
            (Floats{third, third, 2 * third, third, 2 * third, third, third}));
  EXPECT_EQ(adaptive_avg_pool2d(x.reshape({1, 1, 1, 7}), 2, 9).shape(), (Dims{1, 1, 2, 9}));
  if (test::kNewThrows) {
    EXPECT_THROW(adaptive_avg_pool2d(x, std::int64_t{1} << 50, 1), Error);
  }
}

TEST_F(EdgeValues, EmptyArraysGoForwardAndBack) {
  EXPECT_EQ(matmul(Tensor::ones({2, 0}, device_), Tensor::ones({0, 3}, device_)).to_vector<float>(),
            Floats(6, 0.0F));
  Tensor a = Tensor::ones({2, 0}, device_), b = Tensor::ones({0, 3}, device_);
  a.set_requires_grad(true);
  b.set_requires_grad(true);
  sum(matmul(a, b)).backward();
  EXPECT_EQ(a.grad().shape(), (Dims{2, 0}));
  EXPECT_EQ(b.grad().shape(), (Dims{0, 3}));
  for (const bool divides : {true, false}) {
    Tensor x = Tensor::ones({0, 3, 5, 5}, device_);
    x.set_requires_grad(true);
    sum(adaptive_avg_pool2d(x, divides ? 1 : 2, divides ? 1 : 3)).backward();
    EXPECT_EQ(x.grad().shape(), x.shape());
  }
  Tensor x = Tensor::ones({0, 3, 4, 4}, device_);
  x.set_requires_grad(true);
  sum(max_pool2d(x, 2)).backward();
  EXPECT_EQ(x.grad().shape(), x.shape());
}

TEST_F(EdgeValues, NoDimensionsAreAllOfThem) {
  const Tensor x = leaf({1, 2, 3, 6}, {2, 2});
  EXPECT_EQ(sum(x, {}).item(), 12);
  EXPECT_EQ(mean(x, {}).item(), 3);
  EXPECT_EQ(amax(x, {}).item(), 6);
  EXPECT_EQ(sum(x, {}, true).shape(), (Dims{1, 1}));
  EXPECT_EQ(gradient_of(x, sum(x, {})), Floats(4, 1.0F));
  EXPECT_THROW(sum(x, {std::int64_t{1} << 32}), UsageError);
}

TEST_F(EdgeValues, NumbersBesideTensors) {
  EXPECT_TRUE(std::signbit(mul(Tensor::full({1}, 5, device_), -0.0).to_vector<float>()[0]));
  EXPECT_TRUE(std::signbit(mul(Tensor::full({1}, -0.0, device_), 2).to_vector<float>()[0]));
  const std::int64_t large = (std::int64_t{1} << 53) + 1;
  const Tensor whole = Tensor::from_data(Ints{3, large}, {2}, device_);
  EXPECT_EQ(mul(whole, 2).to_vector<std::int64_t>(), (Ints{6, 2 * large}));
  EXPECT_EQ(add(whole, -1).to_vector<std::int64_t>(), (Ints{2, large - 1}));
}

TEST_F(EdgeValues, GeluOfTheSmallestNumbersHasSlopeOneHalf) {
  const Tensor x = leaf({1e-45F, -1e-45F, 1e-38F, 0, 1e-10F});
  EXPECT_EQ(gradient_of(x, gelu(x)), (Floats{0.5F, 0.5F, 0.5F, 0.5F, 0.5F}));
}

/// Where its terms cancel, the slope keeps bf16's eight digits.
TEST_F(EdgeValues, GeluInBf16HasTheSlopeOfItsArgument) {
  Tensor x = Tensor::full({1}, -0.75, device_, DType::bf16);
  x.set_requires_grad(true);
  const double exact =
      0.5 * std::erfc(0.75 / std::sqrt(2.0)) - 0.75 * std::exp(-0.28125) / std::sqrt(2 * M_PI);
  EXPECT_NEAR(gradient_of(x, gelu(x))[0], exact, std::abs(exact) / 256);
}

TEST_F(EdgeValues, AQuotientOfZeroHasNoSlopeInItsDivisor) {
  const Tensor zero = leaf({0, -0.0F}), tiny = leaf({1e-45F, -1e-45F});
  EXPECT_EQ(gradient_of(tiny, div(zero, tiny)), (Floats{0, 0}));
}

// PyTorch: "all elements of input should be between 0 and 1".
TEST_F(EdgeValues, CrossEntropyWantsProbabilities) {
  const auto loss = [&](float p, float t) {
    return binary_cross_entropy(Tensor::from_data({0.5F, p}, {2}, device_),
                                Tensor::from_data({0.5F, t}, {2}, device_));
  };
  EXPECT_TRUE(std::isfinite(loss(0, 1).item()));
  EXPECT_TRUE(std::isfinite(loss(1, 0).item()));
  for (const float outside : {-0.25F, 1.25F}) {
    EXPECT_THROW(loss(outside, 0), UsageError);
    EXPECT_THROW(loss(0.5F, outside), UsageError);
  }
  EXPECT_TRUE(std::isnan(loss(std::nanf(""), 0).item())) << "training reports the loss";
}

TEST_F(EdgeValues, GeometriesThatMeanNothingAreRefused) {
  const Tensor x = Tensor::ones({1, 2, 6, 6}, device_), w = Tensor::ones({2, 2, 3, 3}, device_);
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Tensor image = x.to(dtype), kernel = w.to(dtype);
    EXPECT_THROW(conv2d(image, kernel, {}, {.pad_h = -1}), UsageError);
    EXPECT_THROW(conv2d(image, Tensor::ones({2, 2, 0, 3}, device_, dtype), {}), UsageError);
    EXPECT_THROW(conv2d_relu_pool2d(image, kernel, {}, {.stride_h = 0}, {}), UsageError);
    EXPECT_THROW(max_pool2d(image, 0), UsageError);
    EXPECT_THROW(avg_pool2d(image, -2), UsageError);
  }
}

TEST_F(EdgeValues, ConvolutionInBf16TakesABiasInF32ForwardAndBack) {
  Tensor x = Tensor::ones({2, 3, 6, 6}, device_, DType::bf16),
         w = Tensor::ones({4, 3, 3, 3}, device_, DType::bf16);
  Tensor bias = Tensor::ones({4}, device_);
  for (Tensor* tensor : {&x, &w, &bias}) tensor->set_requires_grad(true);
  sum(conv2d(x, w, bias).to(DType::f32)).backward();
  EXPECT_EQ(bias.grad().to_vector<float>(), Floats(4, 32.0F));
  bias.zero_grad();
  sum(conv2d_relu_pool2d(x, w, bias, {}, {.kind = PoolKind::avg}).to(DType::f32)).backward();
  EXPECT_EQ(bias.grad().to_vector<float>(), Floats(4, 8.0F));
}

TEST_F(EdgeValues, LowPrecisionCopiesAreOfOneLayout) {
  const Tensor weight = Tensor::from_data(Floats{1, 2, 3, 4}, {2, 2}, device_);
  LowPrecisionWeights copies;
  EXPECT_EQ(copies.get(weight, DType::bf16).to_vector<float>(), (Floats{1, 2, 3, 4}));
  EXPECT_EQ(copies.get(weight.transpose(0, 1), DType::bf16).to_vector<float>(), (Floats{1, 3, 2, 4}));
}

/// A batch normalisation may get running statistics that are columns of a matrix.
TEST_F(EdgeValues, StridedRunningStatisticsMoveInPlace) {
  const auto here = [this](const Dims& shape) { return Tensor::ones(shape, device_); };
  const Tensor x = here({2, 3, 4, 4}), table = Tensor::zeros({3, 2}, device_);
  const Tensor mean = table.select(1, 1), var = here({3});
  batch_norm(x, {}, {}, mean, var, {.momentum = 0.5}, true);
  EXPECT_EQ(table.to_vector<float>(), (Floats{0, 0.5F, 0, 0.5F, 0, 0.5F}));
  EXPECT_THROW(batch_norm(x, {}, {}, here({1}).expand({3}), var, {}, true), UsageError);
}

/// x · (1 / 3) has another last bit for every third x or so; PyTorch divides.
TEST_F(EdgeValues, ATensorOverANumberIsTheQuotient) {
  for (const float divisor : {3.0F, 7.0F, 0.25F, 1e-45F, 0x1p127F, 0.0F}) {
    Floats values, quotients;
    for (int i = 1; i < 1000; ++i) {
      values.push_back(static_cast<float>(i) * 0.37F);
      quotients.push_back(values.back() / divisor);
    }
    const Tensor x = leaf(values);
    EXPECT_EQ((x / divisor).to_vector<float>(), quotients) << "over " << divisor;
    Tensor y = x.detach().clone();
    y /= divisor;
    EXPECT_EQ(y.to_vector<float>(), quotients) << "in place, over " << divisor;
  }
  const Tensor x = leaf({6, 9});
  EXPECT_EQ(gradient_of(x, x / 3), (Floats{1.0F / 3, 1.0F / 3}));
}

TEST_F(EdgeValues, ConvolutionsOfNothingInLowPrecisionAreNothing) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    Tensor x = Tensor::ones({0, 3, 6, 6}, device_, dtype), w = Tensor::ones({4, 3, 3, 3}, device_, dtype);
    for (Tensor* tensor : {&x, &w}) tensor->set_requires_grad(true);
    const Tensor y = conv2d(x, w, {});
    EXPECT_EQ(y.numel(), 0);
    sum(y.to(DType::f32)).backward();
    EXPECT_EQ(x.grad().numel(), 0);
    EXPECT_EQ(w.grad().to(DType::f32).to_vector<float>(), Floats(4 * 27, 0.0F));
  }
}

/// PyTorch's is 1 / beta everywhere within beta, where the two agree as well.
TEST_F(EdgeValues, SmoothL1HasItsSecondDerivativeWhereBothAreEqual) {
  const Tensor x = leaf({0, 0.25F, -0.25F, 2, -2}), y = Tensor::zeros({5}, device_);
  const Tensor loss = smooth_l1_loss(x, y, LossReduction::sum, 0.5);
  const Tensor slope = gradients(loss, std::vector<Tensor>{x}, {}, {.create_graph = true})[0];
  EXPECT_EQ(slope.to_vector<float>(), (Floats{0, 0.5F, -0.5F, 1, -1}));
  EXPECT_EQ(gradient_of(x, slope), (Floats{2, 2, 2, 0, 0}));
}

/// Kernels know int64 alone.
TEST_F(EdgeValues, SmallIntegersAndTruthValuesHaveAnOrder) {
  for (const DType dtype : {DType::i32, DType::i16, DType::i8, DType::u8, DType::boolean}) {
    const bool truth = dtype == DType::boolean;
    const Tensor x = Tensor::from_data(truth ? Ints{0, 1, 0} : Ints{3, 7, 2}, {3}, device_).to(dtype);
    const Ints rising = truth ? Ints{0, 0, 1} : Ints{2, 3, 7}, places = truth ? Ints{0, 2, 1} : Ints{2, 0, 1};
    const Sorted sorted = sort(x), top = topk(x, 1), largest = max(x, 0), smallest = min(x, 0);
    for (const Sorted* each : {&sorted, &top, &largest, &smallest}) EXPECT_EQ(each->values.dtype(), dtype);
    EXPECT_EQ(sorted.values.to(DType::i64).to_vector<std::int64_t>(), rising) << name_of(dtype);
    EXPECT_EQ(sorted.indices.to_vector<std::int64_t>(), places) << name_of(dtype);
    EXPECT_EQ(top.indices.to_vector<std::int64_t>(), Ints{1}) << name_of(dtype);
    EXPECT_EQ(largest.values.to(DType::i64).to_vector<std::int64_t>(), Ints{rising[2]}) << name_of(dtype);
    EXPECT_EQ(largest.indices.to_vector<std::int64_t>(), Ints{1}) << name_of(dtype);
    EXPECT_EQ(smallest.values.to(DType::i64).to_vector<std::int64_t>(), Ints{rising[0]}) << name_of(dtype);
    EXPECT_EQ(argmax(x, 0).to_vector<std::int64_t>(), Ints{1}) << name_of(dtype);
    EXPECT_EQ(argmin(x, 0).to_vector<std::int64_t>(), Ints{places[0]}) << name_of(dtype);
  }
  const Tensor half = Tensor::from_data(Floats{2, 0.5F, 1}, {3}, device_).to(DType::f16);
  EXPECT_EQ(sort(half).values.describe(), "float16 [3]");
  EXPECT_EQ(sort(half).indices.to_vector<std::int64_t>(), (Ints{1, 2, 0}));
}

TEST_F(EdgeValues, OfNothing) {
  const Tensor nothing = Tensor::zeros({2, 0}, device_);
  EXPECT_EQ(logsumexp(nothing, {1}).to_vector<float>(), (Floats{-kInf, -kInf}));
  const Tensors parts = chunk(Tensor::zeros({0, 2}, device_), 3);
  ASSERT_EQ(parts.size(), 3U);
  for (const Tensor& part : parts) EXPECT_EQ(part.shape(), (Dims{0, 2}));
}

TEST_F(EdgeValues, SquaresOfTruthValuesAreWholeNumbers) {
  const Tensor truth = Tensor::from_data(Ints{0, 1}, {2}, device_).to(DType::boolean);
  EXPECT_EQ(square(truth).describe(), "int64 [2]");
  EXPECT_EQ(square(truth).to_vector<std::int64_t>(), (Ints{0, 1}));
}

TEST_F(EdgeValues, ScalesWithoutAnExtentAreRefused) {
  const Tensor x = Tensor::ones({1, 1, 4, 4}, device_);
  for (const double scale : {1e18, std::numeric_limits<double>::quiet_NaN(), -1.0})
    EXPECT_THROW(interpolate(x, {.scale = {scale}}), UsageError) << scale;
}

}  // namespace
}  // namespace dtrain
