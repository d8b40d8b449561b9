// Activations, indexing and the convolutions made of conv2d: first and second gradients against central
// differences.
#include <optional>

#include "runtime/autograd/ops/activations.h"
#include "tests/unit/autograd/gradient_cases.h"

namespace dtrain {
namespace {

using test::Case;
using Inputs = std::vector<Tensor>;

std::vector<Case> activation_cases() {
  const std::vector<Dims> s = {{3, 4}};
  return {
      {"leaky_relu", s, [](const Inputs& x) { return square(leaky_relu(x[0], 0.2)); }},
      {"prelu", {{2, 3, 2}, {3}}, [](const Inputs& x) { return square(prelu(x[0], x[1])); }},
      {"prelu one weight", {{2, 3}, {1}}, [](const Inputs& x) { return square(prelu(x[0], x[1])); }},
      {"silu", s, [](const Inputs& x) { return silu(x[0]); }, -3, 3},
      {"gelu_tanh", s, [](const Inputs& x) { return gelu_tanh(x[0]); }, -3, 3},
      {"softsign", s, [](const Inputs& x) { return softsign(x[0]); }, -3, 3},
      {"softplus", s, [](const Inputs& x) { return softplus(x[0], 2); }, -3, 3},
      {"softplus linear part", s, [](const Inputs& x) { return square(softplus(x[0], 2, 1)); }, 1, 2},
      {"clamp", s, [](const Inputs& x) { return square(clamp(x[0], -0.5, 0.25)); }},
      {"clamp below", s, [](const Inputs& x) { return square(clamp(x[0], std::nullopt, 0.25)); }},
      {"pow of tensors", {{2, 3}, {3}}, [](const Inputs& x) { return pow(x[0], x[1]); }, 0.5, 2},
  };
}

Tensor indices(const std::vector<std::int64_t>& values, const Dims& shape) {
  return Tensor::from_data(values, shape, test::cpu());
}

std::vector<Case> indexing_cases() {
  const std::vector<Dims> s = {{2, 3, 4}};
  const Tensor picks = indices({2, 0, 0, 1, 1, 2, 2, 2}, {2, 2, 2});
  return {
      {"gather", s, [picks](const Inputs& x) { return square(gather(x[0], 1, picks)); }},
      {"gather last", s, [picks](const Inputs& x) { return square(gather(x[0], -1, picks)); }},
      {"scatter_add",
       {{2, 3, 4}, {2, 2, 3}},
       [picks](const Inputs& x) { return square(scatter_add(x[0], 1, picks, x[1])); }},
      {"cumsum", s, [](const Inputs& x) { return square(cumsum(x[0], 1)); }},
      {"sort", s, [](const Inputs& x) { return square(sort(x[0], 1, true).values); }},
      {"topk", s, [](const Inputs& x) { return square(topk(x[0], 2).values); }},
      {"softmax dim", s, [](const Inputs& x) { return softmax(x[0], 1); }},
      {"log_softmax dim", s, [](const Inputs& x) { return log_softmax(x[0], 0); }},
      {"pad",
       {{2, 3}},
       [](const Inputs& x) {
         return square(pad(x[0], {1, 2, 0, 1}, 0.5));
       }},
      {"pad cuts off",
       {{4, 5}},
       [](const Inputs& x) {
         return square(pad(x[0], {-1, -2, 1, -2}));
       }},
  };
}

std::vector<Case> convolution_cases() {
  return {
      {"conv1d",
       {{2, 2, 6}, {3, 2, 3}, {3}},
       [](const Inputs& x) { return conv1d(x[0], x[1], x[2], {.stride = 2, .pad = 1}); }},
      {"conv1d groups",
       {{1, 4, 5}, {4, 2, 2}},
       [](const Inputs& x) { return conv1d(x[0], x[1], {}, {.dilation = 2, .groups = 2}); }},
      {"conv3d",
       {{1, 2, 4, 3, 3}, {2, 2, 2, 2, 2}, {2}},
       [](const Inputs& x) { return conv3d(x[0], x[1], x[2], {.stride_d = 2, .pad_d = 1, .pad_h = 1}); }},
      {"conv3d groups",
       {{1, 2, 4, 3, 2}, {2, 1, 2, 2, 1}},
       [](const Inputs& x) { return conv3d(x[0], x[1], {}, {.dilation_d = 2, .groups = 2}); }},
      {"conv_transpose2d",
       {{1, 2, 3, 2}, {2, 2, 3, 2}, {2}},
       [](const Inputs& x) {
         return conv_transpose2d(x[0], x[1], x[2], {2, 1, 1, 0}, 1, 0);
       }},
      {"conv_transpose2d groups",
       {{1, 4, 2, 2}, {4, 1, 2, 2}},
       [](const Inputs& x) {
         return conv_transpose2d(x[0], x[1], {}, {1, 1, 0, 0, 2, 2, 2});
       }},
  };
}

class FamilyGradients : public test::CaseTest {};

TEST_P(FamilyGradients, AreThoseOfCentralDifferences) { test::expect_gradients(GetParam().f, inputs()); }

TEST_P(FamilyGradients, OfGradientsAreThoseOfCentralDifferences) {
  test::expect_second_gradients(GetParam().f, inputs());
}

INSTANTIATE_TEST_SUITE_P(Activations, FamilyGradients, testing::ValuesIn(activation_cases()),
                         test::name_of_case);
INSTANTIATE_TEST_SUITE_P(Indexing, FamilyGradients, testing::ValuesIn(indexing_cases()), test::name_of_case);
INSTANTIATE_TEST_SUITE_P(Convolutions, FamilyGradients, testing::ValuesIn(convolution_cases()),
                         test::name_of_case);

}  // namespace
}  // namespace dtrain
