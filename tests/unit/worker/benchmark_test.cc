// What `dtrain bench` reads, counts and prints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/factory.h"
#include "models/tasks/classification.h"
#include "runtime/device/timed_device.h"
#include "tests/support/json.h"
#include "tests/unit/collectives/fake_communicator.h"
#include "worker/benchmark/all_reduce.h"
#include "worker/benchmark/byte_sizes.h"
#include "worker/benchmark/overlap.h"
#include "worker/benchmark/peak.h"
#include "worker/benchmark/samples.h"
#include "worker/benchmark/step_profile.h"
#include "worker/benchmark/step_runner.h"

namespace dtrain {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ByteSizes, SuffixesArePowersOf1024) {
  EXPECT_EQ(parse_bytes("512"), 512U);
  EXPECT_EQ(parse_bytes("3k"), 3U << 10);
  EXPECT_EQ(parse_bytes("64M"), 64U << 20);
  EXPECT_EQ(parse_bytes("2G"), std::size_t{2} << 30);
  for (const char* wrong : {"", "K", "0", "-1K", "1.5M", "1KB", "1T", "9999999999999999G"})
    EXPECT_EQ(parse_bytes(wrong), std::nullopt) << wrong;
}

TEST(ByteSizes, GoUpByTheFactorInWholeElements) {
  EXPECT_THAT(sizes_between(1024, 64 * 1024, 4, 4), ElementsAre(1024, 4096, 16384, 65536));
  EXPECT_THAT(sizes_between(1000, 1000, 2, 8), ElementsAre(1000));
  EXPECT_THAT(sizes_between(1, 32, 2, 8), ElementsAre(8, 16, 32));
  EXPECT_THAT(sizes_between(3, 20, 2, 4), ElementsAre(4, 12)) << "3, 6 and 12";
}

TEST(Samples, QuantilesAreSamples) {
  EXPECT_EQ(median({5, 1, 3}), 3);
  EXPECT_EQ(quantile({4, 1, 3, 2}, 0.25), 2);
  EXPECT_EQ(quantile({4, 1, 3, 2}, 1), 4);
  EXPECT_EQ(median({}), 0);
  EXPECT_EQ(least({5, 1, 3}), 1);
}

TEST(AllReduce, LineAndJsonSayTheSame) {
  // 4 MiB in 1 ms: 4.194 GB/s; each of 4 ranks sends and receives 2·3/4 of it.
  const AllReduceResult result{1 << 20, DType::f32, 4, 1e-3, 0.5e-3, 7};
  const std::string line = all_reduce_line(result);
  EXPECT_EQ(line,
            "     4194304      1048576  float32    sum    1000.00     500.00    4.194    6.291       7\n");
  EXPECT_EQ(all_reduce_heading().find('\n') + 1, line.size()) << "columns stand below their names";
  const auto json = test::Json::parse(all_reduce_json(result, "gloo"));
  EXPECT_EQ(json["bytes"], 4194304);
  EXPECT_EQ(json["backend"], "gloo");
  EXPECT_EQ(json["wrong"], 7);
  EXPECT_NEAR(json["busbw_gbs"], 6.291, 0.001);
}

TEST(AllReduce, OfOneWorkerMovesNothing) {
  const AllReduceResult result{100, DType::f32, 1, 1e-6, 1e-6, 0};
  EXPECT_EQ(result.bus_gbs(), 0);
  EXPECT_GT(result.algorithm_gbs(), 0);
}

TEST(AllReduce, WrongElementsAreCounted) {
  // A world of two whose other rank contributes nothing: of three elements in a row 0, 1, 2 the sums are 1,
  // 3, 2, so that two of three are wrong, before the timed calls and after them.
  test::FakeCommunicator communicator(2);
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::i64, DType::i32, DType::u8}) {
    const AllReducePlan plan{.dtype = dtype, .warmup = 1, .iterations = 3};
    const AllReduceResult result = measure_all_reduce(communicator, make_device("cpu"), 30, plan);
    EXPECT_EQ(result.wrong, 40) << name_of(dtype);
    EXPECT_LE(result.best_seconds, result.median_seconds);
  }
}

TimedSpan span(std::string name, std::string_view category, int start_ms, int end_ms, double flops = 0,
               std::int64_t thread = 1) {
  const TimePoint origin{};
  return {std::move(name), category, origin + milliseconds(start_ms), origin + milliseconds(end_ms),
          thread,          flops};
}

std::vector<TimedSpan> two_steps() {
  std::vector<TimedSpan> spans;
  for (const int at : {0, 100}) {
    spans.push_back(span("conv2d", "conv", at + 1, at + 5, 8e6));
    spans.push_back(span("copy", "elementwise", at + 5, at + 6));
    spans.push_back(span("forward", "phase", at, at + 10));
    spans.push_back(span("all_reduce bucket 0", "collective", at + 11, at + 12));
    spans.push_back(span("copy", "elementwise", at + 11, at + 12, 0, 2));  // another thread's
    spans.push_back(span("communication", "phase", at + 10, at + 20));
    spans.push_back(span("fill", "elementwise", at + 50, at + 60));  // between steps
  }
  return spans;
}

TEST(StepProfile, OperationsAreCountedWhereTheyRan) {
  const StepProfile profile = make_profile(two_steps(), 2, ProfileBy::kernel);
  ASSERT_EQ(profile.rows.size(), 4U);
  EXPECT_NEAR(profile.seconds, 0.020, 1e-9);
  EXPECT_EQ(profile.flops, 8e6);
  EXPECT_EQ(profile.rows[0].operation, "conv2d");
  EXPECT_EQ(profile.rows[0].phase, "forward");
  EXPECT_EQ(profile.rows[0].calls, 1);
  EXPECT_NEAR(profile.rows[0].seconds, 0.004, 1e-9);
  EXPECT_EQ(profile.rows[1].operation, "copy");
  EXPECT_EQ(profile.rows[2].operation, kOutsideKernels);
  EXPECT_NEAR(profile.rows[2].seconds, 0.005, 1e-9);
  EXPECT_EQ(profile.rows[3].operation, kWaiting);
  EXPECT_NEAR(profile.rows[3].seconds, 0.010, 1e-9);
}

TEST(StepProfile, TableAndJsonGiveSharesOfStepAndPeak) {
  const StepProfile profile = make_profile(two_steps(), 2, ProfileBy::kind);
  // 8 MFLOP in 4 ms: 2 GFLOP/s of 10.
  const std::string table = profile_table(profile, 10e9);
  EXPECT_THAT(table,
              HasSubstr("forward        conv                    1.0      4.000   20.0%     0.008       2.0  "
                        "  20.0%\n"));
  EXPECT_THAT(table, HasSubstr("communication  all-reduce, waited      1.0     10.000   50.0%\n"));
  const std::string first = profile_json(profile, 10e9);
  const auto json = test::Json::parse(first.substr(0, first.find('\n')));
  EXPECT_EQ(json["operation"], "conv");
  EXPECT_NEAR(json["of_peak"], 0.2, 1e-9);
}

TEST(Overlap, HiddenIsWhatDoesNotShowInTheStep) {
  EXPECT_NEAR(hidden_share({.step = {1.1, 1.2}, .compute = {1.0, 1.1}, .communication = {0.4, 0.4}}), 0.75,
              1e-9);
  EXPECT_EQ(hidden_share({.step = {1.9}, .compute = {1.0}, .communication = {0.4}}), 0) << "more than all";
  EXPECT_EQ(hidden_share({.step = {0.9}, .compute = {1.0}, .communication = {0.4}}), 1)
      << "less than nothing";
  EXPECT_EQ(hidden_share({.step = {1.0}, .compute = {1.0}, .communication = {}}), 0) << "nothing to hide";
  const Exposed added =
      exposed({.step = {2, 3, 4, 9}, .compute = {1, 1, 1, 1}, .communication = {1, 1, 1, 1}});
  EXPECT_EQ(added.lower, 2);
  EXPECT_EQ(added.median, 3);
  EXPECT_EQ(added.upper, 8);
}

const Classification kMlp("mlp");

TrainConfig mlp_recipe(const std::string& precision) {
  const auto arguments = std::vector<std::string>{"--dataset=synthetic:1x8x8,10,100", "--batch-size=4",
                                                  "--precision=" + precision};
  return make_train_config(resolve_options("test", train_options(), arguments, {}), "mlp", 1);
}

TEST(StepRunner, AStepHasItsPhasesAndItsOperations) {
  for (const std::string precision : {"fp32", "bf16", "fp16"}) {
    SpanRecorder spans;
    NullLog log;
    const auto communicator = make_communicator(Backend::self, {}, log);
    StepRunner runner(mlp_recipe(precision), kMlp, *communicator,
                      make_timed_device(make_device("cpu"), spans), log, &spans);
    spans.take();
    runner.step();
    runner.step();
    const StepProfile profile = make_profile(spans.take(), 2, ProfileBy::kind);
    std::vector<std::string> phases;
    for (const ProfileRow& row : profile.rows) {
      if (phases.empty() || phases.back() != row.phase) phases.push_back(row.phase);
      EXPECT_GE(row.seconds, 0) << row.operation;
    }
    EXPECT_THAT(phases, ElementsAre("copy to device", "forward", "backward", "communication", "optimizer"));
    // Three layers forward and their weights' gradients; the input's gradient of all but the first.
    const double batch = 4, first = 64 * 512, second = 512 * 512, third = 512 * 10;
    EXPECT_EQ(profile.flops, 2 * batch * (2 * first + 3 * second + 3 * third)) << precision;
  }
}

TEST(StepRunner, WithoutCommunicationNothingIsSentAndAloneNothingIsComputed) {
  SpanRecorder spans;
  NullLog log;
  const auto communicator = make_communicator(Backend::self, {}, log);
  StepRunner runner(mlp_recipe("fp32"), kMlp, *communicator, make_timed_device(make_device("cpu"), spans),
                    log, &spans);
  spans.take();
  runner.compute();
  for (const TimedSpan& recorded : spans.take()) EXPECT_NE(recorded.name, "communication");
  runner.communicate();
  for (const TimedSpan& recorded : spans.take()) EXPECT_EQ(recorded.category, "elementwise");
  runner.step();  // and a whole step still works
  EXPECT_EQ(make_profile(spans.take(), 1, ProfileBy::kind).rows.front().phase, "copy to device");
}

TEST(Peak, IsMoreThanNothing) {
  NullLog log;
  const auto communicator = make_communicator(Backend::self, {}, log);
  EXPECT_GT(measure_peak_flops(*communicator, make_device("cpu"), Precision::fp32, std::chrono::minutes(1)),
            1e8);
}

}  // namespace
}  // namespace dtrain
