// Convolution, pooling, batch norm and cross-entropy: gradients against central differences.
#include <gtest/gtest.h>

#include "tests/unit/autograd/grad_check.h"

namespace dtrain {
namespace {

using Inputs = std::vector<Tensor>;

struct ConvCase {
  Dims x, w;
  Conv2dGeometry geometry;
  Activation activation = Activation::none;
};

class ConvGradients : public testing::TestWithParam<ConvCase> {};

TEST_P(ConvGradients, AreThoseOfCentralDifferences) {
  const ConvCase& c = GetParam();
  test::expect_gradients(
      [&c](const Inputs& in) { return conv2d(in[0], in[1], in[2], c.geometry, c.activation); },
      {test::random_f64(c.x, 1), test::random_f64(c.w, 2), test::random_f64({c.w[0]}, 3)});
}

TEST_P(ConvGradients, WithoutBiasFromChannelsLast) {
  const ConvCase& c = GetParam();
  test::expect_gradients(
      [&c](const Inputs& in) {
        return conv2d(in[0].contiguous(MemoryFormat::channels_last), in[1], {}, c.geometry, c.activation);
      },
      {test::random_f64(c.x, 4), test::random_f64(c.w, 5)});
}

Conv2dGeometry geometry(std::int64_t stride, std::int64_t pad, std::int64_t dilation, std::int64_t groups) {
  return {stride, stride, pad, pad, dilation, dilation, groups};
}

INSTANTIATE_TEST_SUITE_P(
    Geometries, ConvGradients,
    testing::Values(ConvCase{{2, 1, 5, 4}, {3, 1, 3, 3}, geometry(1, 0, 1, 1)},
                    ConvCase{{1, 4, 5, 5}, {2, 4, 3, 2}, geometry(2, 1, 1, 1), Activation::relu},
                    ConvCase{{2, 4, 6, 5}, {4, 2, 2, 2}, geometry(1, 1, 2, 2)},
                    ConvCase{{1, 3, 4, 4}, {3, 1, 1, 1}, geometry(1, 0, 1, 3), Activation::relu}));

class PoolGradients : public testing::TestWithParam<Pool2dGeometry> {};

TEST_P(PoolGradients, AreThoseOfCentralDifferences) {
  const auto f = [](const Inputs& in) { return pool2d(in[0], GetParam()); };
  test::expect_gradients(f, {test::random_f64({2, 3, 5, 4}, 6)});
  test::expect_gradients(
      [&f](const Inputs& in) { return f({in[0].contiguous(MemoryFormat::channels_last)}); },
      {test::random_f64({2, 3, 5, 4}, 6)});
}

INSTANTIATE_TEST_SUITE_P(Geometries, PoolGradients,
                         testing::Values(Pool2dGeometry{PoolKind::max, 2, 2, 2, 2, 0, 0},
                                         Pool2dGeometry{PoolKind::max, 3, 2, 1, 2, 1, 1},
                                         Pool2dGeometry{PoolKind::avg, 2, 2, 2, 2, 0, 0},
                                         Pool2dGeometry{PoolKind::avg, 3, 3, 2, 1, 1, 1}));

struct FusedCase {
  Conv2dGeometry conv;
  Pool2dGeometry pool;
};

class FusedGradients : public testing::TestWithParam<FusedCase> {};

TEST_P(FusedGradients, AreThoseOfCentralDifferencesAndOfTheParts) {
  const auto [conv, pool] = GetParam();
  const Inputs inputs{test::random_f64({2, 2, 7, 6}, 1), test::random_f64({3, 2, 3, 2}, 2),
                      test::random_f64({3}, 3)};
  const auto fused = [&](const Inputs& in) { return conv2d_relu_pool2d(in[0], in[1], in[2], conv, pool); };
  test::expect_gradients(fused, inputs);
  test::expect_gradients(  // only the bias is wanted
      [&](const Inputs& in) { return conv2d_relu_pool2d(inputs[0], inputs[1], in[0], conv, pool); },
      {inputs[2]});
  const Tensor parts = pool2d(conv2d(inputs[0], inputs[1], inputs[2], conv, Activation::relu), pool);
  const auto expected = parts.to_vector<double>(), got = fused(inputs).to_vector<double>();
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-12);
}

INSTANTIATE_TEST_SUITE_P(Geometries, FusedGradients,
                         testing::Values(FusedCase{geometry(1, 0, 1, 1), {PoolKind::avg, 2, 2, 2, 2, 0, 0}},
                                         FusedCase{geometry(1, 1, 1, 1), {PoolKind::max, 2, 2, 2, 2, 0, 0}},
                                         FusedCase{geometry(1, 0, 1, 1), {PoolKind::max, 3, 3, 1, 1, 1, 1}}));

Tensor normalized(const Inputs& in, bool training, Activation activation, const Tensor& residual) {
  const Tensor mean = test::random_f64({3}, 40), var = test::random_f64({3}, 41, 0.5, 1.5);
  return batch_norm(in[0], in[1], in[2], mean, var, {.activation = activation}, training, residual);
}

TEST(BatchNormGradients, AreThoseOfCentralDifferences) {
  const Inputs inputs = {test::random_f64({3, 3, 4, 2}, 30), test::random_f64({3}, 31),
                         test::random_f64({3}, 32), test::random_f64({3, 3, 4, 2}, 33)};
  for (const bool training : {true, false}) {
    for (const Activation activation : {Activation::none, Activation::relu}) {
      test::expect_gradients([&](const Inputs& in) { return normalized(in, training, activation, in[3]); },
                             inputs);
      test::expect_gradients(
          [&](const Inputs& in) {
            return normalized({in[0].contiguous(MemoryFormat::channels_last), in[1], in[2]}, training,
                              activation, {});
          },
          {inputs[0], inputs[1], inputs[2]});
    }
  }
}

TEST(AdaptivePoolGradients, AreThoseOfCentralDifferences) {
  for (const auto& [height, width] : {std::pair{1, 1}, {2, 3}, {4, 4}, {3, 5}}) {
    test::expect_gradients(
        [h = height, w = width](const Inputs& in) { return adaptive_avg_pool2d(in[0], h, w); },
        {test::random_f64({2, 2, 6, 7}, 34)});
  }
}

Tensor labels() {
  return Tensor::from_data({std::int64_t{2}, std::int64_t{0}, std::int64_t{3}}, {3}, test::cpu());
}

TEST(CrossEntropyGradients, AreThoseOfCentralDifferences) {
  for (const auto reduction : {LossReduction::mean, LossReduction::sum, LossReduction::none}) {
    test::expect_gradients(
        [reduction](const Inputs& in) { return cross_entropy(in[0], labels(), reduction); },
        {test::random_f64({3, 4}, 8, -2, 2)});
  }
}

TEST(ConvNet, GradientsThroughAllLayers) {
  test::expect_gradients(
      [](const Inputs& in) {
        const Tensor features = max_pool2d(conv2d(in[0], in[1], in[2], {}, Activation::relu), 2);
        return cross_entropy(linear(flatten(features), in[3], {}), labels());
      },
      {test::random_f64({3, 2, 6, 6}, 9), test::random_f64({3, 2, 3, 3}, 10), test::random_f64({3}, 11),
       test::random_f64({4, 12}, 12)});
}

}  // namespace
}  // namespace dtrain
