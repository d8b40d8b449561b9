// Every case of the table of operations on the GPU, in every dtype it has, against the CPU in float64.
#include <gtest/gtest.h>

#include "tests/operations/suite.h"

namespace dtrain::test {
namespace {

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
    for (const bool channels_last : {false, true}) {
      SCOPED_TRACE(std::string(name_of(dtype)) + (channels_last ? ", channels-last" : ""));
      expect_alike(values_of(c, gpu, {dtype, dtype, channels_last}), expected, c.rough * tolerance_of(dtype));
    }
  }
  expect_alike(results_of(c, gpu, {DType::f32}), results_of(c, cpu, {DType::f32}),
               c.rough * tolerance_of(DType::f32));
}

INSTANTIATE_TEST_SUITE_P(Table, GpuOperation, testing::ValuesIn(fixed_cases()),
                         [](const auto& of) { return name_of_case(of.param); });

}  // namespace
}  // namespace dtrain::test
