// Exact resume: a run stopped or killed at any moment ends with the very weights of one that was never
// disturbed.
#include <gtest/gtest.h>

#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <set>
#include <thread>

#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "tests/support/json.h"
#include "tests/support/temp_dir.h"
#include "tests/support/training.h"

namespace dtrain::test {
namespace {

constexpr std::size_t kGlobalBatch = 48;

class Resume : public ::testing::Test {
 protected:
  void SetUp() override { write_small_dataset(folder_ / "data", 1000, 100); }

  TrainingRun training(const std::string& name, int world, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"--model",
                                          "mlp",
                                          "--dataset",
                                          "fashion-mnist",
                                          "--data-dir",
                                          (folder_ / "data").string(),
                                          "--epochs",
                                          "3",
                                          "--global-batch-size",
                                          std::to_string(kGlobalBatch),
                                          "--optimizer",
                                          "adamw",
                                          "--lr",
                                          "0.01",
                                          "--lr-schedule",
                                          "cosine",
                                          "--warmup-steps",
                                          "5",
                                          "--log-every",
                                          "1",
                                          "--checkpoint-every",
                                          "7"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return {.start = world == 1 ? Start::alone : Start::launcher,
            .world = world,
            .launcher_arguments = {},
            .arguments = arguments,
            .run_dir = folder_ / name,
            .options = limited_to(std::chrono::seconds(120))};
  }

  // Sends `signal` to `rank` when metrics.jsonl has `step` lines; returns how many processes that hit.
  static int signal_at_step(const TrainingRun& run, int rank, std::size_t step, int signal) {
    const Deadline deadline = Deadline::after(run.options.timeout);
    while (!deadline.expired()) {
      const auto ranks = ranks_marked("DTRAIN_TEST_MARK", run.options.environment.at("DTRAIN_TEST_MARK"));
      const bool reached =
          step == 0 || (std::filesystem::exists(run.run_dir / "metrics.jsonl") && lines(run.run_dir) >= step);
      if (reached && ranks.contains(rank)) return ::kill(ranks.at(rank), signal) == 0 ? 1 : 0;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return 0;
  }

  static std::size_t lines(const std::filesystem::path& run_dir) {
    const std::string text = read_file(run_dir / "metrics.jsonl");
    return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
  }

  TempDir folder_;
};

TEST_F(Resume, MidEpochStopAndResumeIsBitIdentical) {
  const TrainingRun whole = training("whole", 2);
  ASSERT_EQ(train(whole).exit_code, 0);
  // 1000 samples, 48 a step: 21 steps an epoch. Step 29 is inside the second epoch and not on the checkpoint
  // grid.
  const RunResult first = train(training("parts", 2, {"--max-steps", "29"}));
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const TrainingRun rest = training("parts", 2, {"--resume", "auto"});
  const RunResult second = train(rest);
  ASSERT_EQ(second.exit_code, 0) << second.err;
  EXPECT_EQ(losses(whole.run_dir), losses(rest.run_dir));
  EXPECT_EQ(final_weights(whole.run_dir), final_weights(rest.run_dir));
}

TEST_F(Resume, ResumeFromAPathStartsANewRun) {
  ASSERT_EQ(train(training("a", 1, {"--max-steps", "14"})).exit_code, 0);
  const TrainingRun whole = training("whole", 1);
  ASSERT_EQ(train(whole).exit_code, 0);
  const TrainingRun b = training("b", 1, {"--resume", (folder_ / "a").string()});
  const RunResult result = train(b);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(step_lines(b.run_dir).front().step, 15);
  EXPECT_EQ(final_weights(whole.run_dir), final_weights(b.run_dir));
}

// SIGTERM to the launcher: every rank stops after the same step, saves, and the job says "start me again"
// (75).
TEST_F(Resume, ASignalLeavesACheckpointThatGoesOnExactly) {
  const std::vector<std::string> long_enough{"--epochs", "20"};  // to be stopped on a busy machine, too
  const TrainingRun whole = training("whole", 2, long_enough);
  ASSERT_EQ(train(whole).exit_code, 0);
  TrainingRun run = training("stopped", 2, long_enough);
  run.options.while_running = [&](pid_t launcher) {
    const Deadline deadline = Deadline::after(run.options.timeout);
    while (!deadline.expired() &&
           !(std::filesystem::exists(run.run_dir / "metrics.jsonl") && lines(run.run_dir) >= 10)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ::kill(launcher, SIGTERM);
  };
  const RunResult stopped = train(run);
  EXPECT_EQ(stopped.exit_code, 75) << stopped.err;
  EXPECT_LT(losses(run.run_dir).size(), losses(whole.run_dir).size());
  run.options.while_running = nullptr;
  const RunResult rest = train(run);
  ASSERT_EQ(rest.exit_code, 0) << rest.err;
  EXPECT_EQ(losses(run.run_dir), losses(whole.run_dir));
  EXPECT_EQ(final_weights(run.run_dir), final_weights(whole.run_dir));
}

// Every rank sees the loss that is not finite in the same step, before anything is updated.
TEST_F(Resume, ALossThatIsNotFiniteEndsTheRunAndKeepsTheLastCheckpoint) {
  const RunResult good = train(training("nan", 2, {"--max-steps", "7"}));
  ASSERT_EQ(good.exit_code, 0) << good.err;
  const std::size_t before = final_weights(folder_ / "nan");
  const RunResult bad =
      train(training("nan", 2, {"--lr", "1e30", "--lr-schedule", "constant", "--warmup-steps", "0"}));
  EXPECT_EQ(bad.exit_code, 1) << bad.err;
  EXPECT_NE(bad.err.find("rank 0: step"), std::string::npos) << bad.err;
  EXPECT_NE(bad.err.find("the loss is"), std::string::npos) << bad.err;
  EXPECT_NE(bad.err.find("--lr"), std::string::npos) << bad.err;
  EXPECT_EQ(final_weights(folder_ / "nan"), before);
  // What each rank had in that step.
  int batches = 0;
  std::set<std::int64_t> samples;
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / "nan" / "logs")) {
    if (!entry.path().filename().string().starts_with("batch-step-")) continue;
    const auto batch = test::Json::parse(read_file(entry.path()));
    EXPECT_NE(bad.err.find("step " + std::to_string(batch["step"].get<int>()) + " "), std::string::npos)
        << batch;
    for (const auto& index : batch["indices"]) samples.insert(index.get<std::int64_t>());
    EXPECT_EQ(batch["indices"].size() * 2, kGlobalBatch) << batch;
    ++batches;
  }
  EXPECT_EQ(batches, 2);
  EXPECT_EQ(samples.size(), kGlobalBatch) << "no two ranks took the same";
}

// A random worker is killed once its run has reached a random step; the launcher starts the group again.
TEST_F(Resume, KillsWithRestartsLeaveTheSameWeights) {
  const char* rounds_text = std::getenv("DTRAIN_FAULT_ROUNDS");
  const int rounds = rounds_text != nullptr ? std::atoi(rounds_text) : 3;
  const TrainingRun whole = training("whole", 2);
  ASSERT_EQ(train(whole).exit_code, 0);
  const std::size_t expected = final_weights(whole.run_dir);
  std::mt19937 random(17);
  for (int round = 0; round < rounds; ++round) {
    const std::string name = "round" + std::to_string(round);
    TrainingRun run = training(name, 2);
    const int rank = static_cast<int>(random() % 2);
    const std::size_t step = random() % 60;
    int killed = 0;
    run.launcher_arguments = {"--max-restarts=3"};
    run.options.environment["DTRAIN_TEST_MARK"] = (folder_ / name).string();
    run.options.while_running = [&](pid_t) { killed = signal_at_step(run, rank, step, SIGKILL); };
    const RunResult result = train(run);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(killed, 1) << "the run ended before step " << step;
    EXPECT_EQ(final_weights(run.run_dir), expected) << "rank " << rank << " killed at step " << step;
    EXPECT_EQ(losses(run.run_dir), losses(whole.run_dir));
  }
}

// The same where each worker holds a part of everything: what is left are parts that belong together.
TEST_F(Resume, KillsOfWorkersThatHoldPartsLeaveTheSameWeights) {
  const char* rounds_text = std::getenv("DTRAIN_FAULT_ROUNDS");
  const int rounds = rounds_text != nullptr ? std::atoi(rounds_text) : 2;
  const std::vector<std::string> constant = {"--lr-schedule", "constant", "--warmup-steps", "0"};
  const TrainingRun whole = training("whole", 3, constant);
  ASSERT_EQ(train(whole).exit_code, 0);
  std::mt19937 random(29);
  for (int round = 0; round < rounds; ++round) {
    const std::string name = "round" + std::to_string(round);
    std::vector<std::string> parts = constant;
    parts.insert(parts.end(), {"--shard", "parameters", "--max-steps", "58"});
    TrainingRun run = training(name, 3, parts);
    const int rank = static_cast<int>(random() % 3);
    const std::size_t step = random() % 50;
    int killed = 0;
    run.launcher_arguments = {"--max-restarts=3"};
    run.options.environment["DTRAIN_TEST_MARK"] = (folder_ / name).string();
    run.options.while_running = [&](pid_t) { killed = signal_at_step(run, rank, step, SIGKILL); };
    const RunResult result = train(run);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(killed, 1) << "the run ended before step " << step;
    EXPECT_EQ(count_marked("DTRAIN_TEST_MARK", (folder_ / name).string()), 0) << "an orphan";
    // Whole again for the last steps, whose checkpoint is one file.
    const TrainingRun rest = training(name, 3, constant);
    const RunResult last = train(rest);
    ASSERT_EQ(last.exit_code, 0) << last.err;
    EXPECT_EQ(final_weights(rest.run_dir), final_weights(whole.run_dir))
        << "rank " << rank << " killed at step " << step;
    EXPECT_EQ(losses(rest.run_dir), losses(whole.run_dir));
  }
}

// A worker that hangs is found by the deadline of the collective that the others wait in.
TEST_F(Resume, AStoppedWorkerIsNamedAndTheJobEnds) {
  TrainingRun run = training("hang", 2, {"--epochs", "100000", "--collective-timeout", "2"});
  int stopped = 0;
  run.launcher_arguments = {"--shutdown-timeout=1"};
  run.options.environment["DTRAIN_TEST_MARK"] = (folder_ / "hang").string();
  run.options.while_running = [&](pid_t) { stopped = signal_at_step(run, 1, 10, SIGSTOP); };
  const RunResult result = train(run);
  EXPECT_EQ(stopped, 1);
  EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::peer)) << result.err;
  for (const char* part : {"rank 1", "all_reduce(", "#"})
    EXPECT_NE(result.err.find(part), std::string::npos) << "missing '" << part << "' in: " << result.err;
  EXPECT_EQ(count_marked("DTRAIN_TEST_MARK", (folder_ / "hang").string()), 0);
}

}  // namespace
}  // namespace dtrain::test
