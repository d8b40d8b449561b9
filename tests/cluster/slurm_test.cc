// srun starts the workers itself, one task each: ranks from SLURM_PROCID, peers through the store; neither
// PMIx nor MPI.
#include <gtest/gtest.h>

#include "tests/cluster/slurm_fixture.h"

namespace dtrain::test {
namespace {

class Slurm : public SlurmTest {
 protected:
  std::vector<std::string> recipe() const {
    return {"--model",      "lenet", "--data-dir",   (folder_ / "data").string(),
            "--batch-size", "16",    "--max-steps",  "6",
            "--log-every",  "1",     "--eval-every", "0"};
  }
  // The same recipe under one launcher on one node.
  TrainingRun under_launcher(int workers) const {
    return {.start = Start::launcher,
            .world = workers,
            .launcher_arguments = {},
            .arguments = recipe(),
            .run_dir = folder_ / "launcher",
            .options = one_thread()};
  }
  RunResult under_srun(const std::vector<std::string>& srun, const std::string& run_dir) const {
    std::vector<std::string> argv = {"srun"};
    argv.insert(argv.end(), srun.begin(), srun.end());
    argv.insert(argv.end(), {program("dtrain"), "train", "--run-dir", (folder_ / run_dir).string()});
    for (const std::string& argument : recipe()) argv.push_back(argument);
    return lab_->run(argv, one_thread());
  }
};

// The lab's node names do not resolve, so this also needs Slurm's own address of the first node.
TEST_F(Slurm, TasksOfTwoNodesTrainAsUnderTheLauncher) {
  const RunResult result = under_srun({"-N2", "-n4", "--mpi=none"}, "tasks");
  ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
  const RunResult expected = train(under_launcher(4));
  ASSERT_EQ(expected.exit_code, 0) << expected.err;
  EXPECT_EQ(losses(folder_ / "tasks").size(), 6U);
  EXPECT_EQ(losses(folder_ / "tasks"), losses(folder_ / "launcher"));
  EXPECT_EQ(final_weights(folder_ / "tasks"), final_weights(folder_ / "launcher"));
}

TEST_F(Slurm, NodesMayHaveDifferentNumbersOfTasks) {
  const RunResult result = under_srun({"-N2", "-n3", "--mpi=none"}, "tasks");
  ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
  ASSERT_EQ(train(under_launcher(3)).exit_code, 0);
  EXPECT_EQ(losses(folder_ / "tasks"), losses(folder_ / "launcher"));
}

TEST_F(Slurm, TwoStepsOfAJobDoNotMeet) {
  // $1 and $2 are the run directories, the rest is the command.
  const std::string both =
      "a=$1 b=$2; shift 2; srun --overlap -N2 -n2 \"$@\" --run-dir \"$a\" & first=$!; "
      "srun --overlap -N2 -n2 \"$@\" --run-dir \"$b\" && wait $first";
  std::vector<std::string> argv = {"salloc",
                                   "-N2",
                                   "-n4",
                                   "bash",
                                   "-c",
                                   both,
                                   "bash",
                                   (folder_ / "a").string(),
                                   (folder_ / "b").string(),
                                   program("dtrain"),
                                   "train"};
  for (const std::string& argument : recipe()) argv.push_back(argument);
  const RunResult result = lab_->run(argv, one_thread());
  ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_EQ(losses(folder_ / "a").size(), 6U);
  EXPECT_EQ(losses(folder_ / "a"), losses(folder_ / "b"));
}

// Where rank 0 can be reached by others, no token means no start, and the message has the line to add.
TEST(SlurmToken, IsAskedForWhereOthersCanReachRankZero) {
  if (const auto why = NetnsLab::unavailable()) GTEST_SKIP() << *why;
  const NetnsLab lab(1);
  RunOptions options = limited_to(std::chrono::seconds(20));
  options.environment = {{"SLURM_JOB_ID", "7"},         {"SLURM_STEP_ID", "0"},       {"SLURM_PROCID", "0"},
                         {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_LOCALID", "0"},       {"SLURM_NODEID", "0"},
                         {"SLURM_STEP_NODELIST", "h0"}, {"SLURM_STEP_NUM_NODES", "1"}};
  const RunResult result =
      lab.run(0, {"env", "-u", "DTRAIN_TOKEN", program("dtrain"), "train", "--max-steps", "1"}, options);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.err.find("export DTRAIN_TOKEN=$(openssl rand -hex 32)"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("10.77.0.1"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace dtrain::test
