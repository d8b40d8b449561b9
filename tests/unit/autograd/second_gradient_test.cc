// Gradients of gradients through the operations that compute their first ones in a kernel: convolution,
// pooling, batch norm, cross-entropy. Against central differences.
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/autograd/autocast.h"
#include "tests/unit/autograd/grad_check.h"

namespace dtrain {
namespace {

using Inputs = std::vector<Tensor>;

Conv2dGeometry geometry(std::int64_t stride, std::int64_t pad, std::int64_t dilation, std::int64_t groups) {
  return {stride, stride, pad, pad, dilation, dilation, groups};
}

TEST(SecondGradients, OfConv2d) {
  struct Case {
    Dims x, w;
    Conv2dGeometry geometry;
    Activation activation = Activation::none;
  };
  const Case cases[] = {{{2, 1, 4, 4}, {2, 1, 3, 3}, geometry(1, 0, 1, 1)},
                        {{1, 2, 5, 5}, {2, 2, 3, 2}, geometry(2, 1, 1, 1), Activation::relu},
                        {{1, 4, 4, 3}, {2, 2, 2, 2}, geometry(1, 1, 2, 2)}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.x.to_string());
    test::expect_second_gradients(
        [&c](const Inputs& in) { return square(conv2d(in[0], in[1], in[2], c.geometry, c.activation)); },
        {test::random_f64(c.x, 1), test::random_f64(c.w, 2), test::random_f64({c.w[0]}, 3)});
  }
}

TEST(SecondGradients, OfPooling) {
  const Pool2dGeometry cases[] = {{PoolKind::max, 2, 2, 2, 2, 0, 0},
                                  {PoolKind::max, 3, 2, 1, 2, 1, 1},
                                  {PoolKind::max, 17, 17, 1, 1, 8, 8},  // indices are int32
                                  {PoolKind::avg, 2, 2, 2, 2, 0, 0},
                                  {PoolKind::avg, 3, 3, 2, 1, 1, 1}};
  for (const Pool2dGeometry& g : cases) {
    SCOPED_TRACE(std::to_string(g.kernel_h) + "x" + std::to_string(g.kernel_w));
    const auto f = [&g](const Inputs& in) { return square(pool2d(square(in[0]), g)); };
    test::expect_second_gradients(f, {test::random_f64({1, 2, 5, 4}, 6)});
    test::expect_second_gradients(
        [&f](const Inputs& in) { return f({in[0].contiguous(MemoryFormat::channels_last)}); },
        {test::random_f64({1, 2, 5, 4}, 6)});
  }
}

TEST(SecondGradients, OfConv2dReluPool2d) {
  for (const PoolKind kind : {PoolKind::max, PoolKind::avg}) {
    const auto f = [kind](const Inputs& in) {
      return square(conv2d_relu_pool2d(in[0], in[1], in[2], geometry(1, 1, 1, 1), {kind}));
    };
    test::expect_second_gradients(
        f, {test::random_f64({1, 2, 4, 4}, 1), test::random_f64({2, 2, 3, 3}, 2), test::random_f64({2}, 3)});
  }
}

TEST(SecondGradients, OfBatchNorm) {
  const Inputs inputs = {test::random_f64({2, 2, 2, 2}, 30), test::random_f64({2}, 31),
                         test::random_f64({2}, 32), test::random_f64({2, 2, 2, 2}, 33)};
  for (const bool training : {true, false}) {
    for (const Activation activation : {Activation::none, Activation::relu}) {
      const auto f = [&](const Inputs& in) {
        const Tensor mean = test::random_f64({2}, 40), var = test::random_f64({2}, 41, 0.5, 1.5);
        return square(
            batch_norm(in[0], in[1], in[2], mean, var, {.activation = activation}, training, in[3]));
      };
      test::expect_second_gradients(f, inputs);
    }
  }
  test::expect_second_gradients(
      [](const Inputs& in) { return square(batch_norm(in[0], {}, {}, {}, {}, {}, true)); }, {inputs[0]});
}

TEST(SecondGradients, OfCrossEntropy) {
  const Tensor target =
      Tensor::from_data({std::int64_t{2}, std::int64_t{0}, std::int64_t{3}}, {3}, test::cpu());
  for (const auto reduction : {LossReduction::mean, LossReduction::sum, LossReduction::none}) {
    for (const std::optional<std::int64_t> ignored : {std::optional<std::int64_t>{}, {0}}) {
      const auto f = [&](const Inputs& in) {
        return square(cross_entropy(mul(in[0], in[0]), target, reduction, ignored));
      };
      test::expect_second_gradients(f, {test::random_f64({3, 4}, 8, -2, 2)});
    }
  }
}

/// The penalty of a Wasserstein critic: how far the gradient by the input is from length 1.
TEST(SecondGradients, TrainThroughAGradientPenalty) {
  const auto penalty = [](const Inputs& in) {
    Tensor image = in[2].detach().clone();
    image.set_requires_grad(true);
    const Tensor features = avg_pool2d(conv2d(image, in[0], {}, {}, Activation::relu), 2);
    const Tensor critic = sum(linear(flatten(features), in[1], {}));
    const Tensor slope = gradients(critic, Inputs{image}, {}, {.create_graph = true})[0];
    return square(add(sqrt(sum(square(slope))), -1.0));
  };
  test::expect_gradients(
      [&](const Inputs& in) {
        return penalty({in[0], in[1], test::random_f64({1, 2, 4, 4}, 3)});
      },
      {test::random_f64({3, 2, 3, 3}, 1), test::random_f64({1, 3}, 2)});
}

/// Gradients of such a penalty by the weights of a convolution, its bias and a linear layer's weight.
Inputs penalty_gradients(Precision precision) {
  Inputs parameters{test::random_f64({4, 3, 3, 3}, 1).to(DType::f32), test::random_f64({4}, 2).to(DType::f32),
                    test::random_f64({2, 64}, 3).to(DType::f32)};
  for (Tensor& parameter : parameters) parameter.set_requires_grad(true);
  Tensor image = test::random_f64({2, 3, 4, 4}, 4).to(DType::f32);
  image.set_requires_grad(true);
  LowPrecisionWeights weights;
  Tensor critic;
  {
    const Autocast autocast(precision, weights);
    const Tensor features = square(conv2d(image, parameters[0], parameters[1], {1, 1, 1, 1}));
    critic = square(linear(flatten(features), parameters[2], {})).to(DType::f32);
  }
  const Inputs wanted{image, parameters[0], parameters[1], parameters[2]};
  const Inputs slopes = gradients(sum(critic), wanted, {}, {.create_graph = true});
  Tensor penalty = sum(square(slopes[0]));
  for (std::size_t i = 1; i < slopes.size(); ++i) {
    EXPECT_EQ(slopes[i].dtype(), DType::f32);
    penalty = add(penalty, sum(square(slopes[i])));
  }
  return gradients(penalty, parameters);
}

TEST(SecondGradients, UnderAutocastAreThoseOfFloat32WithinItsPrecision) {
  const Inputs exact = penalty_gradients(Precision::fp32), low = penalty_gradients(Precision::bf16);
  for (std::size_t i = 0; i < exact.size(); ++i) {
    ASSERT_EQ(low[i].dtype(), DType::f32);
    const double length = std::sqrt(sum(square(exact[i])).item());
    const double apart = std::sqrt(sum(square(sub(low[i], exact[i]))).item());
    EXPECT_GT(length, 1) << "parameter " << i;
    EXPECT_LT(apart, 0.03 * length) << "parameter " << i;
  }
}

}  // namespace
}  // namespace dtrain
