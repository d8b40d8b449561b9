// A learning rate stays on its curve whatever number of workers continues, where steps change their size with
// it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numbers>
#include <string>
#include <vector>

#include "tests/launch/option_test.h"

namespace dtrain::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

struct Curve {
  const char* name;
  std::vector<std::string> arguments;
};

void PrintTo(const Curve& curve, std::ostream* out) { *out << curve.name; }

constexpr std::int64_t kSamples = 64, kBatch = 8;

class Schedule : public OptionTest {
 protected:
  /// Four epochs of 64 samples, 8 a worker and step.
  TrainingRun training(const std::string& name, int world, std::vector<std::string> more) const {
    TrainingRun run =
        run_named(name, world, {"--batch-size=8", "--epochs=4", "--lr=0.02", "--log-every=1"}, more);
    run.program = {DTRAIN_NUMBERS};
    return run;
  }

  /// Rates by the samples that were done before their step, from the line of step `first` on.
  static std::map<std::int64_t, double> rates(const std::filesystem::path& run, std::int64_t first,
                                              std::int64_t done, int world) {
    std::map<std::int64_t, double> found;
    for (const StepLine& line : step_lines(run)) {
      if (line.step < first) continue;
      found[done] = line.lr;
      done += world * kBatch;
    }
    return found;
  }
};

class ScheduleCurves : public Schedule, public testing::WithParamInterface<Curve> {};

TEST_P(ScheduleCurves, IsTheSameOnAnyNumberOfWorkers) {
  const TrainingRun whole = training("whole", 2, GetParam().arguments);
  expect_trained(whole);
  const auto expected = rates(whole.run_dir, 1, 0, 2);
  ASSERT_EQ(expected.size(), 4U * kSamples / (2 * kBatch));
  for (const int world : {4, 1}) {
    SCOPED_TRACE(std::to_string(world) + " workers continue");
    const std::string name = "then" + std::to_string(world);
    std::vector<std::string> begun = GetParam().arguments;
    begun.push_back("--max-steps=6");
    expect_trained(training(name, 2, begun));
    const TrainingRun rest = training(name, world, GetParam().arguments);
    const RunResult result = expect_trained(rest);
    EXPECT_THAT(result.err, Not(HasSubstr("the earlier run would have used"))) << "no jump";
    const auto found = rates(rest.run_dir, 7, 6 * 2 * kBatch, world);
    EXPECT_EQ(found.size(), static_cast<std::size_t>((4 * kSamples - 6 * 2 * kBatch) / (world * kBatch)));
    for (const auto& [done, rate] : found) {
      if (expected.contains(done)) {
        EXPECT_EQ(rate, expected.at(done)) << done;
      } else {  // between two of them
        EXPECT_LE(rate, expected.at(done - kBatch)) << done;
        EXPECT_GT(rate, 0) << done;
      }
    }
  }
}

const Curve kCurves[] = {
    {"cosine", {"--lr-schedule=cosine"}},
    {"cosine_after_warm_up", {"--lr-schedule=cosine", "--warmup-steps=3", "--min-lr=0.001"}},
    {"step", {"--lr-schedule=step", "--lr-decay-every=5"}},
};

INSTANTIATE_TEST_SUITE_P(, ScheduleCurves, testing::ValuesIn(kCurves),
                         [](const auto& made) { return std::string(made.param.name); });

TEST_F(Schedule, WarmUpGoesOnBySamples) {
  const std::vector<std::string> slow = {"--warmup-steps=12"};
  expect_trained(training("run", 2, {"--warmup-steps=12", "--max-steps=4"}));
  const TrainingRun rest = training("run", 4, slow);
  expect_trained(rest);
  const std::vector<StepLine> lines = step_lines(rest.run_dir);
  EXPECT_DOUBLE_EQ(lines[3].lr, 0.02 * 4 / 12);
  EXPECT_DOUBLE_EQ(lines[4].lr, 0.02 * 5 / 12);
  EXPECT_DOUBLE_EQ(lines[5].lr, 0.02 * 7 / 12);
  EXPECT_DOUBLE_EQ(lines.back().lr, 0.02);
}

// A run that is measured in steps reaches the end of its curve with its last one.
TEST_F(Schedule, OfARunOfSteps) {
  const std::vector<std::string> steps = {"--batch-size=8", "--max-steps=10", "--lr-schedule=cosine",
                                          "--lr=0.02", "--log-every=1"};
  TrainingRun whole = run_named("whole", 2, steps, {}), rest = run_named("run", 4, steps, {});
  TrainingRun begun = run_named("run", 2, steps, {"--epochs=1"});  // four steps
  for (TrainingRun* run : {&whole, &begun, &rest}) run->program = {DTRAIN_NUMBERS};
  expect_trained(whole);
  expect_trained(begun);
  expect_trained(rest);
  const auto expected = step_lines(whole.run_dir), found = step_lines(rest.run_dir);
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 4; i < found.size(); ++i) EXPECT_EQ(found[i].lr, expected[i].lr) << i;
}

TEST_F(Schedule, WhatChangesIsSaid) {
  const std::vector<std::string> cosine = {"--lr-schedule=cosine"};
  expect_trained(training("run", 2, {"--lr-schedule=cosine", "--max-steps=6"}));
  TrainingRun longer = training("run", 2, {"--lr-schedule=cosine", "--momentum=0.5", "--clip-grad-norm=1"});
  longer.arguments[1] = "--epochs=8";
  const RunResult result = expect_trained(longer);
  EXPECT_THAT(result.err, AllOf(HasSubstr("resuming from step 6 with other options: --epochs 8 (4 before)"),
                                HasSubstr("--momentum 0.5 (0 before), --clip-grad-norm 1 (unset before)"),
                                HasSubstr("step 7: the learning rate is 0.0183"),
                                HasSubstr("would have used 0.0138"), HasSubstr("--lr 0.0151")));
  // The rate that it named is where the curve continues.
  expect_trained(training("smooth", 2, {"--lr-schedule=cosine", "--max-steps=6"}));
  const std::size_t at = result.err.find("--lr 0.0") + 5;
  TrainingRun smooth = training("smooth", 2, cosine);
  smooth.arguments[1] = "--epochs=8";
  smooth.arguments[2] = "--lr=" + result.err.substr(at, result.err.find(' ', at) - at);
  expect_trained(smooth);
  EXPECT_NEAR(step_lines(smooth.run_dir)[6].lr, 0.02 * (1 + std::cos(std::numbers::pi * 6 / 16)) / 2, 1e-5);
}

}  // namespace
}  // namespace dtrain::test
