// --virtual-workers when a node is lost in the middle of an epoch: an elastic job continues with fewer
// workers and ends with the very weights of one worker that was never disturbed.
#include <gtest/gtest.h>
#include <signal.h>

#include <map>
#include <string>
#include <vector>

#include "tests/launch/nodes.h"
#include "tests/launch/option_test.h"

namespace dtrain::test {
namespace {

constexpr auto kPatience = std::chrono::seconds(120);
constexpr int kStepsOfEpoch = 120, kSteps = 150;  // the second epoch begins with the workers that are left
const std::map<std::string, std::string> kOneThread = {{"OMP_NUM_THREADS", "1"}};

class LostNode : public OptionTest {
 protected:
  static std::vector<std::string> training(const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {
        "--model=lenet",        "--dataset=synthetic:1x28x28,10," + std::to_string(48 * kStepsOfEpoch),
        "--optimizer=adamw",    "--global-batch-size=48",
        "--lr=0.002",           "--max-steps=" + std::to_string(kSteps),
        "--checkpoint-every=7", "--eval-every=0",
        "--log-every=1",        "--log-samples"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  /// One worker, from beginning to end.
  void train_alone(const std::vector<std::string>& more) {
    TrainingRun run = run_named("alone", 1, training(more), {});
    run.options.environment = kOneThread;
    run.options.timeout = kPatience;
    expect_trained(run);
  }

  /// Two nodes of three workers; the second is killed, launcher and workers, in the middle of the first
  /// epoch.
  void train_and_lose_a_node(const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"--nproc_per_node=3", "--max-restarts=3", "dtrain", "train"};
    for (const std::string& argument : training(more)) arguments.push_back(argument);
    arguments.push_back("--run-dir=" + run_dir().string());
    Nodes nodes(2, arguments, "1:2", kOneThread);
    ASSERT_TRUE(eventually([&] { return steps_done() >= 20; }, kPatience)) << nodes.errors();
    const std::vector<pid_t> workers = nodes[1].marked();
    nodes[1].signal(SIGKILL);
    for (const pid_t worker : workers) ::kill(worker, SIGKILL);
    EXPECT_EQ(nodes[0].wait(kPatience), 0) << nodes.errors();
    EXPECT_EQ(nodes[1].wait(kPatience), 128 + SIGKILL);
  }

  std::size_t steps_done() const {
    try {
      return losses(run_dir()).size();
    } catch (const std::exception&) {
      return 0;  // no file yet
    }
  }

  /// Six workers up to some step inside the first epoch, then three.
  void expect_workers_fell_in_mid_epoch() const {
    std::map<std::int64_t, int> workers;  // that computed each step
    for (const auto& [step, lines] : samples_of_steps(run_dir())) workers[step] = lines.front().world;
    ASSERT_EQ(workers.size(), static_cast<std::size_t>(kSteps));
    std::int64_t last_of_six = 0;
    for (const auto& [step, world] : workers) {
      if (world == 6) last_of_six = step;
    }
    EXPECT_GT(last_of_six, 0);
    EXPECT_LT(last_of_six, kStepsOfEpoch - 1);
    for (const auto& [step, world] : workers)
      EXPECT_EQ(world, step <= last_of_six ? 6 : 3) << "step " << step;
    std::printf("six workers until step %d of %d in the epoch, then three\n", static_cast<int>(last_of_six),
                kStepsOfEpoch);
  }

  std::filesystem::path run_dir() const { return folder_ / "elastic"; }
};

TEST_F(LostNode, WithVirtualWorkersChangesNoBit) {
  const std::vector<std::string> parts = {"--virtual-workers=8"};
  train_alone(parts);
  train_and_lose_a_node(parts);
  expect_workers_fell_in_mid_epoch();
  EXPECT_EQ(final_weights(run_dir()), final_weights(folder_ / "alone"));
}

// The control: sums over the workers that are there.
TEST_F(LostNode, WithoutThemTheWeightsTellHowManyWorkersThereWere) {
  train_alone({});
  train_and_lose_a_node({});
  expect_workers_fell_in_mid_epoch();
  EXPECT_NE(final_weights(run_dir()), final_weights(folder_ / "alone"));
}

}  // namespace
}  // namespace dtrain::test
