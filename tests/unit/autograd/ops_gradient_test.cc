// Every differentiable operation: first and second gradients against central differences.
#include "tests/unit/autograd/gradient_cases.h"

namespace dtrain {
namespace {

using test::Case;
using Inputs = std::vector<Tensor>;

std::vector<Case> binary_cases() {
  std::vector<Case> cases;
  const std::vector<std::vector<Dims>> shapes = {
      {{2, 3}, {2, 3}}, {{2, 3}, {3}}, {{2, 1}, {1, 3}}, {{}, {2, 3}}, {{2, 1, 3}, {4, 1}}};
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const std::string tag = std::to_string(i);
    const auto& s = shapes[i];
    cases.push_back({"add" + tag, s, [](const Inputs& x) { return x[0] + x[1]; }});
    cases.push_back({"sub" + tag, s, [](const Inputs& x) { return x[0] - x[1]; }});
    cases.push_back({"mul" + tag, s, [](const Inputs& x) { return x[0] * x[1]; }});
    cases.push_back({"div" + tag, s, [](const Inputs& x) { return x[0] / x[1]; }, 0.5, 2});
    cases.push_back({"maximum" + tag, s, [](const Inputs& x) { return square(maximum(x[0], x[1])); }});
    cases.push_back({"minimum" + tag, s, [](const Inputs& x) { return square(minimum(x[0], x[1])); }});
    cases.push_back({"where" + tag, s,
                     [](const Inputs& x) { return where(greater(x[0], x[1]), square(x[0]), x[0] * x[1]); }});
  }
  return cases;
}

std::vector<Case> unary_cases() {
  const std::vector<Dims> s = {{3, 4}};
  return {
      {"neg", s, [](const Inputs& x) { return -x[0]; }},
      {"abs", s, [](const Inputs& x) { return abs(x[0]); }},
      {"exp", s, [](const Inputs& x) { return exp(x[0]); }},
      {"log", s, [](const Inputs& x) { return log(x[0]); }, 0.5, 2},
      {"sqrt", s, [](const Inputs& x) { return sqrt(x[0]); }, 0.5, 2},
      {"rsqrt", s, [](const Inputs& x) { return rsqrt(x[0]); }, 0.5, 2},
      {"reciprocal", s, [](const Inputs& x) { return reciprocal(x[0]); }, 0.5, 2},
      {"square", s, [](const Inputs& x) { return square(x[0]); }},
      {"relu", s, [](const Inputs& x) { return relu(x[0]); }},
      {"relu of square", s, [](const Inputs& x) { return square(relu(x[0] * x[0] - 0.2)); }},
      {"sigmoid", s, [](const Inputs& x) { return sigmoid(x[0]); }},
      {"tanh", s, [](const Inputs& x) { return tanh(x[0]); }},
      {"gelu", s, [](const Inputs& x) { return gelu(x[0]); }, -3, 3},
      {"scalars", s, [](const Inputs& x) { return (x[0] * 3.0 + 1.0) * (x[0] / 2.0 - 4.0); }},
      {"pow3", s, [](const Inputs& x) { return pow(x[0], 3); }},
      {"pow0", s, [](const Inputs& x) { return pow(x[0], 0); }},
      {"pow-1.5", s, [](const Inputs& x) { return pow(x[0], -1.5); }, 0.5, 2},
  };
}

std::vector<Case> reduction_cases() {
  const std::vector<Dims> s = {{2, 3, 4}};
  return {
      {"sum", s, [](const Inputs& x) { return square(sum(x[0])); }},
      {"sum dims", s,
       [](const Inputs& x) {
         return square(sum(x[0], {0, -1}));
       }},
      {"sum keep", s, [](const Inputs& x) { return x[0] * sum(x[0], {1}, true); }},
      {"mean", s, [](const Inputs& x) { return square(mean(x[0])); }},
      {"mean dims", s,
       [](const Inputs& x) {
         return x[0] * mean(x[0], {0, 2}, true);
       }},
      {"amax", s, [](const Inputs& x) { return square(amax(x[0], {1})); }},
      {"amin", s,
       [](const Inputs& x) {
         return square(amin(x[0], {0, 2}, true));
       }},
      {"softmax", s, [](const Inputs& x) { return softmax(x[0]); }},
      {"log_softmax", s, [](const Inputs& x) { return log_softmax(x[0]); }},
      {"mse", {{2, 3}, {2, 3}}, [](const Inputs& x) { return mse_loss(x[0], x[1]); }},
      {"mse sum", {{2, 3}, {2, 3}}, [](const Inputs& x) { return mse_loss(x[0], x[1], LossReduction::sum); }},
  };
}

std::vector<Case> matmul_cases() {
  const auto product = [](const Inputs& x) { return matmul(x[0], x[1]); };
  const auto dense = [](const Inputs& x) { return linear(x[0], x[1], x[2]); };
  const auto dense_relu = [](const Inputs& x) { return linear(x[0], x[1], x[2], Activation::relu); };
  return {
      {"matrices", {{2, 3}, {3, 4}}, product},
      {"vectors", {{3}, {3}}, product},
      {"matrix vector", {{2, 3}, {3}}, product},
      {"vector matrix", {{3}, {3, 4}}, product},
      {"batch matrix", {{5, 2, 3}, {3, 4}}, product},
      {"batches", {{5, 2, 3}, {5, 3, 2}}, product},
      {"broadcast batches", {{2, 1, 2, 3}, {3, 3, 2}}, product},
      {"matrix batch", {{2, 3}, {4, 3, 2}}, product},
      {"transposed",
       {{3, 2}, {4, 3}},
       [](const Inputs& x) { return matmul(x[0].transpose(0, 1), x[1].transpose(0, 1)); }},
      {"linear", {{2, 3}, {4, 3}, {4}}, dense},
      {"linear rows", {{2, 2, 3}, {4, 3}, {4}}, dense},
      {"linear vector", {{3}, {4, 3}, {4}}, dense},
      {"linear relu", {{2, 3}, {4, 3}, {4}}, dense_relu},
      {"linear no bias", {{2, 3}, {4, 3}}, [](const Inputs& x) { return linear(x[0], x[1], {}); }},
      {"linear twice",
       {{2, 3}, {3, 3}, {3}},
       [](const Inputs& x) { return linear(linear(x[0], x[1], x[2], Activation::relu), x[1], x[2]); }},
  };
}

std::vector<Case> view_cases() {
  const std::vector<Dims> s = {{2, 3, 4}};
  const auto picks = Tensor::from_data({std::int64_t{2}, std::int64_t{0}, std::int64_t{2}}, {3}, test::cpu());
  return {
      {"reshape", s,
       [](const Inputs& x) {
         return square(x[0].reshape({4, -1}));
       }},
      {"view", s,
       [](const Inputs& x) {
         return square(x[0].view({6, 4}));
       }},
      {"flatten", s, [](const Inputs& x) { return square(flatten(x[0])); }},
      {"transpose reshape", s,
       [](const Inputs& x) {
         return square(x[0].transpose(0, 2).reshape({3, 8}));
       }},
      {"permute", s,
       [](const Inputs& x) {
         return square(x[0].permute({2, 0, 1}));
       }},
      {"select", s, [](const Inputs& x) { return square(x[0].select(1, -1)); }},
      {"slice", s, [](const Inputs& x) { return square(x[0].slice(2, 1, 4, 2)); }},
      {"overlapping slices", s, [](const Inputs& x) { return x[0].slice(2, 0, 3) * x[0].slice(2, 1, 4); }},
      {"expand",
       {{3, 1}},
       [](const Inputs& x) {
         return square(x[0].expand({2, 3, 4}));
       }},
      {"squeeze", {{1, 3, 1}}, [](const Inputs& x) { return square(x[0].squeeze().unsqueeze(0)); }},
      {"squeeze dim", {{1, 3, 1}}, [](const Inputs& x) { return square(x[0].squeeze(2)); }},
      {"index_select", s, [picks](const Inputs& x) { return square(x[0].index_select(1, picks)); }},
      {"index_select rows",
       {{3, 2}},
       [picks](const Inputs& x) { return square(x[0].index_select(0, picks)); }},
      {"clone", s, [](const Inputs& x) { return square(x[0].clone()); }},
      {"channels last",
       {{2, 3, 2, 2}},
       [](const Inputs& x) {
         return square(x[0].contiguous(MemoryFormat::channels_last)).reshape({2, 12});
       }},
      {"sum_to", s,
       [](const Inputs& x) {
         return square(x[0].sum_to({3, 1}));
       }},
  };
}

class Gradients : public test::CaseTest {};

TEST_P(Gradients, AreThoseOfCentralDifferences) { test::expect_gradients(GetParam().f, inputs()); }

TEST_P(Gradients, OfGradientsAreThoseOfCentralDifferences) {
  test::expect_second_gradients(GetParam().f, inputs());
}

INSTANTIATE_TEST_SUITE_P(Binary, Gradients, testing::ValuesIn(binary_cases()), test::name_of_case);
INSTANTIATE_TEST_SUITE_P(Unary, Gradients, testing::ValuesIn(unary_cases()), test::name_of_case);
INSTANTIATE_TEST_SUITE_P(Reductions, Gradients, testing::ValuesIn(reduction_cases()), test::name_of_case);
INSTANTIATE_TEST_SUITE_P(Matmul, Gradients, testing::ValuesIn(matmul_cases()), test::name_of_case);
INSTANTIATE_TEST_SUITE_P(Views, Gradients, testing::ValuesIn(view_cases()), test::name_of_case);

}  // namespace
}  // namespace dtrain
