// What --sync-batch-norm and --recompute promise about a whole training run, through the real programs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/json.h"
#include "tests/support/temp_dir.h"
#include "tests/support/training.h"

namespace dtrain::test {
namespace {

/// The network amplifies rounding: at a rate of 0.001 one process is 4e-5 from itself after one step when
/// only its vector length changes. At 0.0001 it is 4e-6 after four.
constexpr double kSameLoss = 1e-5;
constexpr const char* kRate = "0.0001";

class ResNetOptions : public ::testing::Test {
 protected:
  TrainingRun run_of(const std::string& name, int world, std::vector<std::string> more) {
    TrainingRun run{
        .start = world == 1 ? Start::alone : Start::launcher,
        .world = world,
        .launcher_arguments = {},
        .arguments = {"--model", "resnet18", "--dataset", "synthetic:1x16x16,10,256", "--max-steps", "4",
                      "--global-batch-size", "24", "--lr", kRate, "--log-every", "1", "--eval-every", "0",
                      "--checkpoint-every", "0", "--collective-timeout", "120"},
        .run_dir = folder_ / name,
        .options = {}};
    run.options.timeout = std::chrono::seconds(240);
    run.arguments.insert(run.arguments.end(), more.begin(), more.end());
    return run;
  }
  std::vector<double> losses_of(const TrainingRun& run) {
    const RunResult result = train(run);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return losses(run.run_dir);
  }
  double peak_allocated_bytes(const TrainingRun& run) const {
    return Json::read(run.run_dir / "summary.json").at("peak_allocated_bytes");
  }

  TempDir folder_;
};

TEST_F(ResNetOptions, WorkersWithSyncBatchNormFollowOneWorker) {
  const auto one = losses_of(run_of("one", 1, {}));
  const auto both = losses_of(run_of("both", 2, {"--sync-batch-norm"}));
  const auto each = losses_of(run_of("each", 2, {}));
  ASSERT_EQ(one.size(), 4U);
  ASSERT_EQ(both.size(), one.size());
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(both[i], one[i], kSameLoss) << "step " << i + 1;
  ASSERT_EQ(each.size(), one.size());
  EXPECT_GT(std::abs(each[0] - one[0]), 20 * kSameLoss);  // without it each worker normalises its own part
}

TEST_F(ResNetOptions, RecomputationChangesNoBit) {
  const auto kept = run_of("kept", 1, {"--momentum", "0.9", "--accumulate", "2"});
  const auto again = run_of("again", 1, {"--momentum", "0.9", "--accumulate", "2", "--recompute"});
  EXPECT_EQ(losses_of(again), losses_of(kept));
  EXPECT_EQ(final_weights(again.run_dir), final_weights(kept.run_dir));
}

TEST_F(ResNetOptions, RecomputationTakesLessMemory) {
  const std::vector<std::string> large = {"--max-steps", "1", "--global-batch-size", "128"};
  auto kept = run_of("kept", 1, large), again = run_of("again", 1, large);
  again.arguments.push_back("--recompute");
  EXPECT_EQ(losses_of(again), losses_of(kept));
  EXPECT_LT(peak_allocated_bytes(again),
            0.8 * peak_allocated_bytes(kept));  // parameters and gradients are 90 of 235 MB
}

TEST_F(ResNetOptions, BothTogetherAndAccumulationWork) {
  const std::vector<std::string> sync = {"--sync-batch-norm", "--accumulate", "2", "--momentum", "0.9"};
  const auto kept = run_of("kept", 2, sync);
  auto again = run_of("again", 2, sync);
  again.arguments.push_back("--recompute");
  EXPECT_EQ(losses_of(again), losses_of(kept));
  EXPECT_EQ(final_weights(again.run_dir), final_weights(kept.run_dir));
}

TEST_F(ResNetOptions, ModelsThatCannotAreRefused) {
  for (const std::string option : {"--sync-batch-norm", "--recompute"}) {
    const RunResult result = train(run_of("refused" + option, 1, {"--model", "mlp", option}));
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_THAT(result.err, ::testing::HasSubstr(option + ": expected a model with"));
  }
}

}  // namespace
}  // namespace dtrain::test
