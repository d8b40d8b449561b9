// Training through gradients of gradients: penalties, and under autocast. tests/operations has those of each
// operation.
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/autograd/autocast.h"
#include "tests/unit/autograd/grad_check.h"

namespace dtrain {
namespace {

using Inputs = std::vector<Tensor>;

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
