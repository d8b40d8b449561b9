// A program of somebody's own (examples/own_model): it learns, on two workers too, and has what `dtrain
// train` has without a line of code: resuming bit for bit after kill -9, bf16, traces, refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "tests/support/temp_dir.h"
#include "tests/support/training.h"

namespace dtrain::test {
namespace {

using testing::HasSubstr;

class OwnModel : public testing::Test {
 protected:
  TrainingRun training(const std::string& name, Start start, int world, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"--epochs",     "12", "--lr",   "0.3", "--log-every",        "1",
                                          "--eval-every", "12", "--seed", "4",   "--checkpoint-every", "5"};
    if (std::ranges::find(more, "--optimizer") == more.end()) {
      arguments.insert(arguments.end(), {"--momentum", "0.9"});  // of SGD, the default
    }
    arguments.insert(arguments.end(), more.begin(), more.end());
    const char* examples = std::getenv("DTRAIN_EXAMPLES");
    return {.program = {std::string(examples == nullptr ? "." : examples) + "/own_model"},
            .start = start,
            .world = world,
            .launcher_arguments = {},
            .arguments = arguments,
            .run_dir = folder_ / name,
            .options = limited_to(std::chrono::seconds(100))};
  }

  static void expect_trained(const RunResult& result) {
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  }

  TempDir folder_;
};

TEST_F(OwnModel, LearnsTheSameOnOneAndOnTwoWorkers) {
  const TrainingRun alone = training("alone", Start::alone, 1), two = training("two", Start::launcher, 2);
  expect_trained(train(alone));
  expect_trained(train(two));
  const std::vector<double> a = losses(alone.run_dir), b = losses(two.run_dir);
  ASSERT_EQ(a.size(), 12U * 8);
  ASSERT_EQ(b.size(), a.size());
  for (std::size_t i = 0; i < 10; ++i) EXPECT_NEAR(a[i], b[i], 1e-5) << i;
  EXPECT_GT(a.front(), 4 * a.back());
}

TEST_F(OwnModel, MpirunGivesTheWeightsOfTheLauncher) {
  const TrainingRun launched = training("launched", Start::launcher, 2, {"--max-steps", "20"});
  const TrainingRun under_mpi = training("mpirun", Start::mpirun, 2, {"--max-steps", "20"});
  expect_trained(train(launched));
  expect_trained(train(under_mpi));
  EXPECT_EQ(final_weights(launched.run_dir), final_weights(under_mpi.run_dir));
}

// What is random about a sample is keyed by epoch and index, so a resumed run draws it again.
TEST_F(OwnModel, ResumesBitForBitAfterKill9) {
  const TrainingRun whole = training("whole", Start::launcher, 2, {"--epochs", "150"});
  expect_trained(train(whole));
  for (const Start start : {Start::launcher, Start::mpirun}) {
    TrainingRun killed =
        training(start == Start::mpirun ? "mpirun" : "killed", start, 2, {"--epochs", "150"});
    kill_rank_1_at_a_checkpoint(killed);
    const RunResult result = train(killed);
    killed.options.while_running = {};
    if (result.exit_code == 0) GTEST_SKIP() << "the run was over before it could be killed";
    expect_trained(train(killed));
    EXPECT_EQ(final_weights(killed.run_dir), final_weights(whole.run_dir)) << killed.run_dir;
  }
}

TEST_F(OwnModel, RestartsByItselfAndEndsWithTheSameWeights) {
  const TrainingRun whole = training("whole", Start::launcher, 2, {"--epochs", "150"});
  expect_trained(train(whole));
  TrainingRun killed = training("restarted", Start::launcher, 2, {"--epochs", "150"});
  killed.launcher_arguments = {"--max-restarts=2"};
  kill_rank_1_at_a_checkpoint(killed);
  const RunResult result = train(killed);
  expect_trained(result);
  EXPECT_THAT(result.err, HasSubstr("killed by SIGKILL")) << "the run was over before it could be killed";
  EXPECT_EQ(final_weights(killed.run_dir), final_weights(whole.run_dir));
}

TEST_F(OwnModel, HasTheOptionsOfTrain) {
  const TrainingRun run = training("options", Start::launcher, 2,
                                   {"--max-steps", "12", "--precision", "bf16", "--trace", "auto",
                                    "--accumulate", "2", "--optimizer", "adamw"});
  expect_trained(train(run));
  EXPECT_TRUE(std::filesystem::exists(run.run_dir / "trace-rank1.json"));
  EXPECT_TRUE(std::filesystem::exists(run.run_dir / "report.html"));

  const RunResult help = test::run({run.program.front(), "--help-all"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, HasSubstr("usage: own_model [options]"));
  EXPECT_THAT(help.out, HasSubstr("--accumulate"));
  EXPECT_THAT(help.out, testing::Not(HasSubstr("--model")));
}

TEST_F(OwnModel, RefusesAnotherTasksCheckpointAndWhatCannotBe) {
  TrainingRun other = training("other", Start::alone, 1);
  other.program = {};
  other.arguments = {"--model", "linear", "--dataset", "synthetic:1x2x1,2,64", "--max-steps", "1"};
  expect_trained(train(other));
  TrainingRun mine = training("other", Start::alone, 1);
  const RunResult refused = train(mine);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("was made with"));

  const RunResult unknown = train(training("unknown", Start::alone, 1, {"--modle", "x"}));
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("own_model: "));
}

}  // namespace
}  // namespace dtrain::test
