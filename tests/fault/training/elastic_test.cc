// The number of workers changes between restarts: every sample of an epoch is still seen once, and the loss
// continues as if nothing had happened.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <thread>

#include "runtime/base/clock.h"
#include "runtime/data/tokens/shards/token_shard.h"
#include "tests/support/temp_dir.h"
#include "tests/support/training.h"

namespace dtrain::test {
namespace {

constexpr int kSamples = 1000;

class Elastic : public ::testing::Test {
 protected:
  void SetUp() override { write_small_dataset(folder_ / "data", kSamples, 100); }

  TrainingRun training(const std::string& name, int world, std::vector<std::string> more = {}) const {
    std::vector<std::string> arguments = {"--model",      "mlp", "--data-dir",   (folder_ / "data").string(),
                                          "--epochs",     "3",   "--lr",         "0.05",
                                          "--momentum",   "0.9", "--resume",     "auto",
                                          "--log-every",  "1",   "--eval-every", "0",
                                          "--log-samples"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return {.start = world == 1 ? Start::alone : Start::launcher,
            .world = world,
            .launcher_arguments = {},
            .arguments = arguments,
            .run_dir = folder_ / name,
            .options = limited_to(std::chrono::seconds(120))};
  }
  void must_train(const TrainingRun& run, int code = 0) const {
    const RunResult result = train(run);
    ASSERT_EQ(result.exit_code, code) << result.err;
  }

  void expect_each_once(const std::string& name, int samples = kSamples) const {
    const auto seen = times_taken(samples_of_steps(folder_ / name), static_cast<std::size_t>(samples));
    ASSERT_EQ(seen.size(), 3U);
    for (const auto& [epoch, counts] : seen) {
      EXPECT_EQ(std::count(counts.begin(), counts.end(), 1), samples) << "epoch " << epoch;
    }
  }
  /// Kills the launcher of `run`, and by that all of its workers, after at least `steps` steps; nothing is
  /// told.
  void kill_after(TrainingRun run, std::size_t steps) const {
    run.options.while_running = [&](pid_t launcher) {
      const Deadline deadline = Deadline::after(run.options.timeout);
      while (!deadline.expired() &&
             !(std::filesystem::exists(run.run_dir / "metrics.jsonl") && losses(run.run_dir).size() >= steps))
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      ::kill(launcher, SIGKILL);
    };
    EXPECT_EQ(train(run).exit_code, 128 + SIGKILL);
  }

  TempDir folder_;
};

// 50 samples a step do not divide by 4 or 3: 20 steps an epoch, of 13, 13, 12 and 12, or 17, 17 and 16.
TEST_F(Elastic, FourThenThreeThenFourWorkersSeeEachSampleOnce) {
  const std::vector<std::string> batch = {"--global-batch-size", "50"};
  const auto until = [&](const std::string& step) {
    std::vector<std::string> more = batch;
    if (!step.empty()) more.insert(more.end(), {"--max-steps", step});
    return more;
  };
  must_train(training("elastic", 4, until("13")));
  must_train(training("elastic", 3, until("31")));
  must_train(training("elastic", 4, until("")));
  expect_each_once("elastic");
  must_train(training("alone", 1, batch));
  const auto elastic = losses(folder_ / "elastic"), alone = losses(folder_ / "alone");
  ASSERT_EQ(elastic.size(), 60U);
  ASSERT_EQ(alone.size(), 60U);
  // The same sums in another order: they drift apart in the last digits only.
  for (std::size_t i = 0; i < alone.size(); ++i) EXPECT_NEAR(elastic[i], alone[i], 1e-3) << "step " << i + 1;
}

// A fixed batch for each worker: steps get smaller and more.
TEST_F(Elastic, ABatchForEachWorkerMayChangeTheStepsToo) {
  const std::vector<std::string> batch = {"--batch-size", "10"};
  const auto until = [&](const std::string& step) {
    std::vector<std::string> more = batch;
    if (!step.empty()) more.insert(more.end(), {"--max-steps", step});
    return more;
  };
  must_train(training("elastic", 4, until("13")));  // 520 samples
  must_train(training("elastic", 2, until("30")));  // 860
  must_train(training("elastic", 4, until("")));    // the last 140 in 4 steps; then two epochs of 25
  expect_each_once("elastic");
  EXPECT_EQ(losses(folder_ / "elastic").size(), 84U);
}

// Told to go in mid-epoch by SIGUSR2, started again with one worker less, which is killed and restarted by
// the launcher: still each sample once.
TEST_F(Elastic, SignalsAndKillsInBetweenLoseNoSample) {
  const std::vector<std::string> more = {"--global-batch-size", "50", "--checkpoint-every", "7"};
  TrainingRun run = training("elastic", 4, more);
  const auto wait_for_steps = [&](std::size_t steps) {
    const Deadline deadline = Deadline::after(run.options.timeout);
    while (!deadline.expired() &&
           !(std::filesystem::exists(run.run_dir / "metrics.jsonl") && losses(run.run_dir).size() >= steps))
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  run.options.while_running = [&](pid_t launcher) {
    wait_for_steps(5);
    ::kill(launcher, SIGUSR2);
  };
  must_train(run, 75);
  const std::size_t stopped_at = losses(run.run_dir).size();
  EXPECT_LT(stopped_at, 60U);

  run = training("elastic", 3, more);
  run.launcher_arguments = {"--max-restarts=3"};
  run.options.environment["DTRAIN_TEST_MARK"] = run.run_dir.string();
  run.options.while_running = [&](pid_t) {
    wait_for_steps(stopped_at + 4);
    const auto ranks = ranks_marked("DTRAIN_TEST_MARK", run.run_dir.string());
    if (ranks.contains(1)) ::kill(ranks.at(1), SIGKILL);
  };
  must_train(run);
  expect_each_once("elastic");
}

// Two documents of unequal length fill a window, so that each token but their first is asked for once where
// each window is seen once; two shards of 90.
TEST_F(Elastic, PackedDocumentsAreSeenOnceAfterAKillAndWithTheSameWorkersToTheBit) {
  constexpr int kWindows = 180;
  for (int part = 0; part < 2; ++part) {
    ShardWriter shard(folder_ / "data" / (std::to_string(part) + ".tokens"), 64, 7);
    for (int document = 0; document < kWindows; ++document) {
      shard.begin_document();
      for (int at = 0; at < (document % 2 == 0 ? 7 : 18); ++at)
        shard.append(std::vector<std::int32_t>{(document + at * at) % 64}, at > document % 5);
    }
    shard.finish();
  }
  const std::vector<std::string> packed = {"--model",
                                           "gpt2-tiny",
                                           "--dataset",
                                           "tokens:*.tokens,context=24,documents=whole,test=0.tokens",
                                           "--global-batch-size",
                                           "12",
                                           "--checkpoint-every",
                                           "4"};
  must_train(training("undisturbed", 3, packed));
  expect_each_once("undisturbed", kWindows);
  kill_after(training("same", 3, packed), 21);
  must_train(training("same", 3, packed));
  expect_each_once("same", kWindows);
  EXPECT_EQ(final_weights(folder_ / "same"), final_weights(folder_ / "undisturbed"));
  kill_after(training("fewer", 3, packed), 21);
  must_train(training("fewer", 2, packed));
  expect_each_once("fewer", kWindows);
  const auto fewer = losses(folder_ / "fewer"), undisturbed = losses(folder_ / "undisturbed");
  ASSERT_EQ(fewer.size(), undisturbed.size());
  for (std::size_t i = 0; i < fewer.size(); ++i)
    EXPECT_NEAR(fewer[i], undisturbed[i], 1e-4) << "step " << i + 1;
}

}  // namespace
}  // namespace dtrain::test
