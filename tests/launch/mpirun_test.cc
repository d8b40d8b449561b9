// One launcher a node under mpirun. Two nodes are had on one machine by a stand-in for ssh that runs its
// command here: mpirun takes the two names for two machines.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/process.h"
#include "tests/support/temp_dir.h"

namespace dtrain::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Mpirun : public ::testing::Test {
 protected:
  void SetUp() override {
    if (run({"sh", "-c", "command -v mpirun && mpirun --version | grep -q 'Open MPI'"}).exit_code != 0)
      GTEST_SKIP() << "no Open MPI's mpirun in PATH";
    if (!std::filesystem::exists(program("dtrain-mpi-exchange"))) GTEST_SKIP() << "built without MPI";
    // Open MPI's daemons race for one folder when two of them share a machine: each gets one of its own.
    write_file(folder_ / "rsh",
               "#!/bin/sh\nshift\nexport TMPDIR=$(mktemp -d \"$0.XXXXXX\")\nexec sh -c \"$*\"\n");
    std::filesystem::permissions(folder_ / "rsh", std::filesystem::perms::owner_all);
  }

  RunResult launch(std::vector<std::string> arguments, bool two_nodes = true) const {
    std::vector<std::string> command{"mpirun", "--allow-run-as-root", "-np", "2", "--bind-to", "none"};
    if (two_nodes)
      command.insert(command.end(), {"--host", "nodea:1,nodeb:1", "--mca", "plm_rsh_agent",
                                     (folder_ / "rsh").string(), "--map-by", "ppr:1:node"});
    else
      command.emplace_back("--oversubscribe");
    command.push_back(program("dtrain-launch"));
    command.insert(command.end(), arguments.begin(), arguments.end());
    return run(command, limited_to(std::chrono::seconds(60)));
  }

  TempDir folder_;
};

TEST_F(Mpirun, StartsOneLauncherANodeWhichFindTheOthersThroughMpi) {
  const RunResult result = launch({"--nproc_per_node=2", "sh", "-c",
                                   "echo $RANK/$WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE; "
                                   "env | grep -E '^(OMPI|PMIX|PMI|ORTE)_' | grep -vE "
                                   "'^OMPI_(ALLOW_RUN_AS_ROOT|MCA_plm_rsh_agent)'; true"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const char* line : {"0/4 0/2\n", "1/4 0/2\n", "2/4 1/2\n", "3/4 1/2\n"})
    EXPECT_THAT(result.out, HasSubstr(line)) << result.err;
  EXPECT_THAT(result.out, AllOf(Not(HasSubstr("OMPI_")), Not(HasSubstr("PMIX_")))) << "but the user's own";
}

// Open MPI gives each process a terminal, whatever becomes of the output: here it goes to a pipe.
TEST_F(Mpirun, NoEscapeCodesEndInAFile) {
  const std::vector<std::string> arguments{"--model",     "linear", "--dataset", "synthetic:1x2x1,2,64",
                                           "--max-steps", "3",      "--run-dir"};
  std::vector<std::string> workers{"mpirun",          "--allow-run-as-root", "-np",  "2", "--bind-to", "none",
                                   "--oversubscribe", program("dtrain"),     "train"};
  workers.insert(workers.end(), arguments.begin(), arguments.end());
  workers.push_back((folder_ / "workers").string());
  const RunResult alone = run(workers, limited_to(std::chrono::seconds(60)));
  EXPECT_THAT(alone.out, AllOf(HasSubstr("3/3"), Not(HasSubstr("\x1b")))) << alone.err;

  std::vector<std::string> launched{"dtrain", "train"};
  launched.insert(launched.end(), arguments.begin(), arguments.end());
  launched.push_back((folder_ / "launched").string());
  const RunResult nodes = launch(launched);
  EXPECT_THAT(nodes.out + nodes.err, AllOf(HasSubstr("3/3"), Not(HasSubstr("\x1b"))));
}

TEST_F(Mpirun, WhatTheUserHadSetIsHandedOnAndWhatMpirunSetsIsNot) {
  const std::string name = "OMPI_MCA_hwloc_base_binding_policy";
  const std::string job = "mpirun --allow-run-as-root -np 1 $BIND " + program("dtrain-launch") +
                          " --nproc_per_node=1 sh -c 'echo policy=$" + name + "'";
  RunOptions own = limited_to(std::chrono::seconds(60)), mpiruns = own;
  own.environment = {{name, "none"}, {"BIND", ""}};
  mpiruns.environment = {{"BIND", "--bind-to none"}};
  EXPECT_THAT(run({"sh", "-c", job}, own).out, HasSubstr("policy=none\n"));
  EXPECT_THAT(run({"sh", "-c", job}, mpiruns).out, HasSubstr("policy=\n"));
}

TEST_F(Mpirun, HandsOnTheFirstFailuresCode) {
  const RunResult result = launch({"sh", "-c", "[ $RANK = 1 ] && exit 7; exec sleep 60"});
  EXPECT_EQ(result.exit_code, 7) << result.err;
  EXPECT_THAT(result.err, HasSubstr("rank 1 (node_rank 1, "));
}

TEST_F(Mpirun, SeveralLaunchersOnANodeAreRefusedWithTheCommandToUse) {
  const RunResult result = launch({"sh", "-c", "echo up"}, false);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("mpirun --map-by ppr:1:node dtrain-launch"));
  EXPECT_EQ(result.out, "");
}

TEST_F(Mpirun, SeveralLaunchersOnANodeThatSayHowManyWorkersAreNodesOfTheirOwn) {
  const RunResult result = launch({"--nproc_per_node=1", "sh", "-c", "echo $RANK/$WORLD_SIZE"}, false);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("0/2\n"), HasSubstr("1/2\n"))) << result.err;
}

}  // namespace
}  // namespace dtrain::test
