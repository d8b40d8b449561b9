// First and second gradients of every case of the table, in float64, against central differences.
#include <gtest/gtest.h>

#include "tests/operations/guarded_device.h"
#include "tests/operations/suite.h"
#include "tests/unit/autograd/grad_check.h"

namespace dtrain::test {
namespace {

std::vector<FixedCase> differentiable(int orders) {
  std::vector<FixedCase> cases;
  for (const FixedCase& c : fixed_cases()) {
    if (c.kind != Kind::function || c.is_large || c.orders < orders) continue;
    if (!Case(c.json, cpu(), {DType::f64}).leaves().empty()) cases.push_back(c);
  }
  return cases;
}

class CaseGradients : public testing::TestWithParam<FixedCase> {
 protected:
  /// One number of all results of the case, each weighted, and squared where `curved`: a linear function has
  /// no second gradient.
  static Tensor total(const Case& c, bool curved) {
    Tensor sum_of_all;
    std::uint64_t seed = 70;
    for (const auto& [name, result] : operations().at(c.operation()).run(c)) {
      if (!is_floating(result.dtype()) || name.starts_with("running_")) continue;
      const Tensor weights = random_f64(result.shape(), seed++, 0.5, 1.5);
      const Tensor part = sum(mul(curved ? square(result) : result, weights));
      sum_of_all = sum_of_all.defined() ? add(sum_of_all, part) : part;
    }
    return sum_of_all;
  }
  Case c{GetParam().json, cpu(), {DType::f64}};
};

TEST_P(CaseGradients, AreThoseOfCentralDifferences) {
  for (const bool channels_last : layouts_of(GetParam())) {
    const Case laid_out(GetParam().json, cpu(), {DType::f64, {}, channels_last});
    expect_gradients([&](const std::vector<Tensor>& leaves) { return total(laid_out.with(leaves), false); },
                     laid_out.leaves());
  }
}

class SecondCaseGradients : public CaseGradients {};

TEST_P(SecondCaseGradients, AreThoseOfCentralDifferences) {
  expect_second_gradients([&](const std::vector<Tensor>& leaves) { return total(c.with(leaves), true); },
                          c.leaves());
}

INSTANTIATE_TEST_SUITE_P(Table, CaseGradients, testing::ValuesIn(differentiable(1)),
                         [](const auto& of) { return name_of_case(of.param); });
INSTANTIATE_TEST_SUITE_P(Table, SecondCaseGradients, testing::ValuesIn(differentiable(2)),
                         [](const auto& of) { return name_of_case(of.param); });

}  // namespace
}  // namespace dtrain::test
