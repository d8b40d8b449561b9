// Real training on several nodes: the numbers of one node, a checkpoint when somebody asks for it, nodes that
// are lost and come back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "tests/launch/nodes.h"
#include "tests/support/process.h"
#include "tests/support/temp_dir.h"
#include "tests/support/training.h"

namespace dtrain::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr auto kPatience = std::chrono::seconds(100);
// Launchers take this machine for theirs alone, and there are two of them.
const std::map<std::string, std::string> kOneThread = {{"OMP_NUM_THREADS", "1"}};

class NodesTraining : public ::testing::Test {
 protected:
  void SetUp() override { write_small_dataset(folder_ / "data", 480, 48); }

  std::vector<std::string> training(const std::string& run, int workers,
                                    std::vector<std::string> more = {}) const {
    std::vector<std::string> command{"--nproc_per_node=" + std::to_string(workers),
                                     "dtrain",
                                     "train",
                                     "--model=lenet",
                                     "--dataset=fashion-mnist",
                                     "--data-dir=" + (folder_ / "data").string(),
                                     "--global-batch-size=48",
                                     "--log-every=1",
                                     "--lr=0.05",
                                     "--run-dir=" + (folder_ / run).string()};
    command.insert(command.end(), more.begin(), more.end());
    return command;
  }

  std::size_t steps(const std::string& run) const {
    return std::filesystem::exists(folder_ / run / "metrics.jsonl") ? losses(folder_ / run).size() : 0;
  }

  TempDir folder_;
};

// Such a learning rate diverges in the same step each time.
TEST_F(NodesTraining, AJobThatFailsInTheSameStepEachTimeIsNotRestartedAsOftenAsAllowed) {
  const std::vector<std::string> diverging = {"--epochs=1", "--lr=1e30", "--resume=auto"};
  std::vector<std::string> alone = {program("dtrain-launch"), "--max-restarts=20",
                                    "--max-stalled-restarts=2"};
  for (const std::string& word : training("one", 1, diverging)) alone.push_back(word);
  Running one(alone, kOneThread);
  EXPECT_GT(one.wait(kPatience), 0) << one.err();
  std::vector<std::string> options = {"--max-restarts=20", "--max-stalled-restarts=2"};
  for (const std::string& word : training("two", 1, diverging)) options.push_back(word);
  Nodes nodes(2, options, "2", kOneThread);
  for (int i = 0; i < 2; ++i) EXPECT_GT(nodes[i].wait(kPatience), 0) << nodes.errors();
  for (const std::string& said : {one.err(), nodes[0].err(), nodes[1].err()})
    EXPECT_THAT(said, AllOf(HasSubstr("restart 2 of 20"), Not(HasSubstr("restart 3 of 20")),
                            HasSubstr("no progress over 2 restarts: none ")));
}

TEST_F(NodesTraining, TwoNodesHaveTheNumbersOfOne) {
  Running one(
      {program("dtrain-launch"), "--nproc_per_node=4", "dtrain", "train", "--model=lenet",
       "--dataset=fashion-mnist", "--data-dir=" + (folder_ / "data").string(), "--global-batch-size=48",
       "--log-every=1", "--lr=0.05", "--run-dir=" + (folder_ / "one").string(), "--epochs=1"},
      kOneThread);
  EXPECT_EQ(one.wait(kPatience), 0) << one.err();
  Nodes nodes(2, training("two", 2, {"--epochs=1"}), "2", kOneThread);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(nodes[i].wait(kPatience), 0) << nodes.errors();
  ASSERT_EQ(steps("one"), 10u);
  EXPECT_EQ(losses(folder_ / "two"), losses(folder_ / "one"));
  EXPECT_EQ(final_weights(folder_ / "two"), final_weights(folder_ / "one"));
}

TEST_F(NodesTraining, ASignalToAnyLauncherBringsACheckpointAndARequeue) {
  Nodes nodes(2, training("run", 1, {"--epochs=2000"}), "2", kOneThread);
  ASSERT_TRUE(eventually([&] { return steps("run") > 2; }, kPatience)) << nodes.errors();
  nodes[1].signal(SIGUSR2);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(nodes[i].wait(kPatience), 75) << nodes.errors();
  EXPECT_NO_THROW(final_weights(folder_ / "run"));
  EXPECT_TRUE(eventually([&] { return nodes.marked() == 0; }));
}

TEST_F(NodesTraining, AnElasticJobTrainsOnWithTheNodesThatAreLeftAndTakesNewOnesIn) {
  const std::vector<std::string> arguments =
      training("run", 1, {"--epochs=12", "--checkpoint-every=5", "--resume=auto"});
  std::vector<std::string> elastic{"--max-restarts=3", "--rdzv-conf=last_call_timeout=100"};
  elastic.insert(elastic.end(), arguments.begin(), arguments.end());
  Nodes nodes(2, elastic, "1:2", kOneThread);
  ASSERT_TRUE(eventually([&] { return steps("run") > 10; }, kPatience)) << nodes.errors();
  nodes[1].signal(SIGKILL);
  ASSERT_TRUE(
      eventually([&] { return nodes[0].err().find("restart 1 of 3") != std::string::npos; }, kPatience))
      << nodes.errors();
  Running& back = nodes.add(1, elastic, "1:2", kOneThread);
  EXPECT_EQ(nodes[0].wait(kPatience), 0) << nodes.errors();
  EXPECT_EQ(back.wait(kPatience), 0) << nodes.errors();
  const auto lines = step_lines(folder_ / "run");
  ASSERT_FALSE(lines.empty());
  EXPECT_EQ(lines.back().step, 120) << "12 epochs of 480 samples, 48 a step, whatever the number of workers";
}

}  // namespace
}  // namespace dtrain::test
