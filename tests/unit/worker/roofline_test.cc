// What is predicted of a step from what it does.
#include "worker/benchmark/roofline.h"

#include <gtest/gtest.h>

#include <sstream>

#include "runtime/base/error.h"
#include "tests/support/json.h"

namespace dtrain::test {
namespace {

DeviceWork kernel(std::string name, double read, double written) {
  return {std::move(name), read, written, 0, 0, Arithmetic::none};
}

TEST(Roofline, ACallTakesTheLongestOfWhatItNeeds) {
  const GpuPeaks gpu{"a", 1e12, 1e10, 1e12, 1e13, 1e14, 1e15};
  EXPECT_DOUBLE_EQ(shortest_seconds(kernel("k", 100, 100), gpu), 1e-6);  // no kernel is shorter
  EXPECT_DOUBLE_EQ(shortest_seconds(kernel("k", 3e9, 1e9), gpu), 4e-3);
  EXPECT_DOUBLE_EQ(shortest_seconds({"copy", 0, 0, 1e7, 0, Arithmetic::none}, gpu), 1e-3);
  const auto product = [](Arithmetic how) { return DeviceWork{"mm", 1e9, 0, 0, 1e13, how}; };
  EXPECT_DOUBLE_EQ(shortest_seconds(product(Arithmetic::f64), gpu), 10);
  EXPECT_DOUBLE_EQ(shortest_seconds(product(Arithmetic::f32), gpu), 1);
  EXPECT_DOUBLE_EQ(shortest_seconds(product(Arithmetic::tf32), gpu), 0.1);
  EXPECT_DOUBLE_EQ(shortest_seconds(product(Arithmetic::bf16), gpu), 0.01);
}

TEST(Roofline, ManyShortCallsWaitForTheHost) {
  const std::vector<DeviceWork> step(1000, kernel("(row_kernel<T, Op>)", 0, 0));
  const StepForecast found = forecast(step, gpu_named("h100", "--forecast"));
  EXPECT_NEAR(found.recorded(), 1e-3, 1e-9);
  EXPECT_NEAR(found.as_it_comes(), 2e-3, 1e-9);
  ASSERT_EQ(found.rows.size(), 1U);
  EXPECT_EQ(found.rows[0].name, "row_kernel");
  EXPECT_EQ(found.rows[0].calls, 1000);
}

TEST(Roofline, GrowsWhatGrowsWithTheBatch) {
  const std::vector<DeviceWork> two = {kernel("image", 200, 20), kernel("weight", 50, 5)},
                                four = {kernel("image", 400, 40), kernel("weight", 50, 5)};
  const auto many = at_batch(two, 2, four, 4, 256);
  EXPECT_DOUBLE_EQ(many[0].read_bytes, 25600);
  EXPECT_DOUBLE_EQ(many[0].written_bytes, 2560);
  EXPECT_DOUBLE_EQ(many[1].read_bytes, 50);
  EXPECT_THROW(at_batch(two, 2, {two[0]}, 4, 256), UsageError);
}

TEST(Roofline, SaysThatItIsAPrediction) {
  const auto step = forecast({kernel("k", 1e9, 0)}, gpu_named("l4", "--forecast"));
  const std::string table = forecast_table(step, gpu_named("l4", "--forecast"), 32),
                    json = forecast_json(step, gpu_named("l4", "--forecast"), 32);
  EXPECT_NE(table.find("counted on an emulated GPU, predicted for l4"), std::string::npos) << table;
  std::istringstream lines(json);
  std::string line, last;
  while (std::getline(lines, line)) last = line;
  const auto parsed = test::Json::parse(last);
  EXPECT_EQ(parsed.at("predicted_for"), "l4");
  EXPECT_EQ(parsed.at("emulated"), true);
  EXPECT_NEAR(parsed.at("predicted_recorded_ms").get<double>(), 1e9 / 0.3e12 * 1e3, 1e-9);
  EXPECT_THROW(gpu_named("gtx285", "--forecast"), UsageError);
}

}  // namespace
}  // namespace dtrain::test
