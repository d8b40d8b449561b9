// Two nodes with two emulated GPUs each, on hosts of the netns lab: the numbers of one node with four, and
// what happens when a node is lost with its GPUs.
#include <gtest/gtest.h>

#include <signal.h>

#include <fstream>
#include <map>
#include <memory>
#include <optional>

#include "tests/cluster/labs.h"
#include "tests/launch/running.h"
#include "tests/support/json.h"
#include "tests/support/temp_dir.h"
#include "tests/support/training.h"

namespace dtrain::test {
namespace {

constexpr auto kPatience = std::chrono::seconds(120);

std::vector<std::string> training(const TempDir& folder, int steps, const std::filesystem::path& run_dir) {
  return {"dtrain",
          "train",
          "--device",
          "cuda",
          "--model",
          "lenet",
          "--data-dir",
          (folder / "data").string(),
          "--max-steps",
          std::to_string(steps),
          "--lr",
          "0.05",
          "--momentum",
          "0.9",
          "--cuda-graph",
          "on",
          "--log-every",
          "1",
          "--eval-every",
          "0",
          "--run-dir",
          run_dir.string(),
          "--global-batch-size",
          "16",
          "--checkpoint-every",
          "8",
          "--collective-timeout",
          "30"};
}

class EmulatedNodes : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = NetnsLab::unavailable()) GTEST_SKIP() << *why;
    lab_.emplace(2);
    write_small_dataset(folder_ / "data", 640, 32);
  }

  void start(int node, const std::string& nnodes, const std::vector<std::string>& worker) {
    std::vector<std::string> argv = {program("dtrain-launch"),
                                     "--nnodes=" + nnodes,
                                     "--node_rank=" + std::to_string(node),
                                     "--master_addr=" + NetnsLab::address(0),
                                     "--master_port=29500",
                                     "--emulated-gpus=2",
                                     "--nproc_per_node=auto",
                                     "--max-restarts=3"};
    argv.insert(argv.end(), worker.begin(), worker.end());
    launchers_[node] = std::make_unique<Running>(
        lab_->command(node, argv),
        std::map<std::string, std::string>{
            {"DTRAIN_TOKEN", std::string(64, 'a')}, {"OMP_NUM_THREADS", "1"}, {"DTRAIN_TEST_JOB", mark_}});
  }
  Running& launcher(int node) { return *launchers_.at(node); }
  bool reaches(std::size_t steps) const {
    return eventually(
        [&] {
          try {
            return losses(run_dir_).size() >= steps;
          } catch (const std::exception&) {
            return false;  // not there yet, or its last line half written
          }
        },
        kPatience);
  }
  Json summary() const { return Json::read(run_dir_ / "summary.json"); }

  TempDir folder_;
  const std::filesystem::path run_dir_ = folder_ / "run";
  const std::string mark_ = folder_.path().string();
  std::optional<NetnsLab> lab_;
  std::map<int, std::unique_ptr<Running>> launchers_;
};

TEST_F(EmulatedNodes, TrainAsOneNodeWithAllGpus) {
  for (int node = 0; node < 2; ++node) start(node, "2", training(folder_, 12, run_dir_));
  for (int node = 0; node < 2; ++node) ASSERT_EQ(launcher(node).wait(kPatience), 0) << launcher(node).err();
  EXPECT_EQ(summary().at("world_size"), 4);
  EXPECT_EQ(summary().at("emulated"), true);
  TrainingRun one{.start = Start::launcher,
                  .world = 4,
                  .launcher_arguments = {"--emulated-gpus=4"},
                  .arguments = training(folder_, 12, folder_ / "one"),
                  .run_dir = folder_ / "one",
                  .options = limited_to(kPatience)};
  one.arguments.erase(one.arguments.begin(), one.arguments.begin() + 2);
  const RunResult result = train(one);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(final_weights(run_dir_), final_weights(one.run_dir));
  EXPECT_EQ(losses(run_dir_), losses(one.run_dir));
}

// The other node goes on with its own two.
TEST_F(EmulatedNodes, OneThatIsLostLeavesTheOtherTraining) {
  constexpr int kSteps = 80;
  for (int node = 0; node < 2; ++node) start(node, "1:2", training(folder_, kSteps, run_dir_));
  ASSERT_TRUE(reaches(12)) << launcher(0).err() << launcher(1).err();
  const std::vector<pid_t> workers = launcher(1).marked();
  launcher(1).signal(SIGKILL);
  for (const pid_t worker : workers) ::kill(worker, SIGKILL);
  EXPECT_EQ(launcher(0).wait(kPatience), 0) << launcher(0).err();
  EXPECT_EQ(summary().at("world_size"), 2);
  const auto steps = step_lines(run_dir_);
  ASSERT_FALSE(steps.empty());
  EXPECT_EQ(steps.back().step, kSteps);
  EXPECT_TRUE(
      eventually([&] { return count_marked("DTRAIN_TEST_JOB", mark_) == 0; }, std::chrono::seconds(20)));
}

}  // namespace
}  // namespace dtrain::test
