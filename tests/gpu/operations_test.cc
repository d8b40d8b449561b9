// Every case of the table of operations on the GPU, in every dtype it has, against the CPU in float64.
#include <gtest/gtest.h>

#include "tests/operations/suite.h"

namespace dtrain::test {
namespace {

/// Convolutions of other extents are in images_test.cc.
std::vector<FixedCase> cases_of_gpus() {
  std::vector<FixedCase> cases = fixed_cases();
  std::erase_if(cases, [](const FixedCase& c) { return c.for_cpu; });
  return cases;
}

class GpuOperation : public testing::TestWithParam<FixedCase> {
 protected:
  std::shared_ptr<Device> cpu = make_device("cpu"), gpu = make_device("cuda");
};

TEST_P(GpuOperation, IsThatOfTheCpuWithinRounding) {
  const FixedCase& c = GetParam();
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    if (c.kind == Kind::layer && dtype != DType::f32) continue;
    const DType exact = c.kind == Kind::layer ? DType::f32 : DType::f64;
    const Values expected = values_of(c, cpu, {exact, dtype});
    for (const bool channels_last : layouts_of(c)) {
      SCOPED_TRACE(std::string(name_of(dtype)) + (channels_last ? ", channels-last" : ""));
      expect_alike(values_of(c, gpu, {dtype, dtype, channels_last}), expected, c.rough * tolerance_of(dtype));
    }
  }
  expect_alike(results_of(c, gpu, {DType::f32}), results_of(c, cpu, {DType::f32}),
               c.rough * tolerance_of(DType::f32));
}

INSTANTIATE_TEST_SUITE_P(Table, GpuOperation, testing::ValuesIn(cases_of_gpus()),
                         [](const auto& of) { return name_of_case(of.param); });

}  // namespace
}  // namespace dtrain::test
