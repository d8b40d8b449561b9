// Gradients of gradients through the operations that compute their first ones in a kernel: convolution,
// pooling, batch norm, cross-entropy. Against central differences; where there are none, a refusal by name.
#include <gtest/gtest.h>

#include "runtime/autograd/autocast.h"
#include "runtime/base/error.h"
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

TEST(SecondGradients, AreRefusedByNameWhereTheyDoNotExist) {
  Generator generator(1);
  Tensor x = Tensor::rand({2, 3, 4, 4}, generator, test::cpu());
  Tensor w = Tensor::rand({2, 3, 3, 3}, generator, test::cpu());
  x.set_requires_grad(true);
  w.set_requires_grad(true);
  LowPrecisionWeights weights;
  Tensor output;
  {
    const Autocast bf16(Precision::bf16, weights);
    output = conv2d(x, w, {});
  }
  const Inputs inputs{x};
  const Tensor gradient =
      gradients(sum(square(output.to(DType::f32))), inputs, {}, {.create_graph = true})[0];
  try {
    gradients(sum(gradient), inputs);
    FAIL() << "conv2d in mixed precision: did not throw";
  } catch (const UsageError& error) {
    EXPECT_EQ(std::string(error.what()).find("conv2d: gradients of its gradient"), 0U) << error.what();
  }
}

}  // namespace
}  // namespace dtrain
