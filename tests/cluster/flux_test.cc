// Jobs of Flux, played by two hosts of the lab: each task gets the variables that flux-environment(7) lists,
// and a program `flux` on PATH that answers as flux does. No real Flux takes part.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "tests/cluster/labs.h"

namespace dtrain::test {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr int kNodes = 2;

class Flux : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = NetnsLab::unavailable()) GTEST_SKIP() << *why;
    lab_.emplace(kNodes);
    // The hosts of the job, and the tasks of each.
    write_file(folder_ / "flux",
               "#!/bin/sh\n"
               "case \"$*\" in\n"
               "'hostlist local') echo '10.77.0.[1-2]' ;;\n"
               "'job taskmap --to=raw fD2e73NP') echo '0-1;2-3' ;;\n"
               "*) echo \"flux: $*: not expected\" >&2; exit 1 ;;\n"
               "esac\n");
    std::filesystem::permissions(folder_ / "flux", std::filesystem::perms::owner_all);
  }

  /// `flux run -N2` with `tasks` on each node; results by task.
  std::vector<RunResult> run(int tasks, const std::vector<std::string>& command) {
    std::vector<RunResult> results(static_cast<std::size_t>(kNodes * tasks));
    std::vector<std::jthread> started;
    for (int task = 0; task < kNodes * tasks; ++task) {
      started.emplace_back([&, task] {
        const auto set = [](const char* name, int value) { return name + std::to_string(value); };
        std::vector<std::string> line{"env",
                                      "PATH=" + folder_.path().string() + ":" + std::getenv("PATH"),
                                      "DTRAIN_TOKEN=" + std::string(64, 'b'),
                                      "FLUX_JOB_ID=fD2e73NP",
                                      set("FLUX_JOB_SIZE=", kNodes * tasks),
                                      set("FLUX_JOB_NNODES=", kNodes),
                                      set("FLUX_TASK_RANK=", task),
                                      set("FLUX_TASK_LOCAL_ID=", task % tasks),
                                      set("PMI_RANK=", task),
                                      set("PMI_SIZE=", kNodes * tasks)};
        line.insert(line.end(), command.begin(), command.end());
        results[static_cast<std::size_t>(task)] = lab_->run(task / tasks, line, limited_to(seconds(90)));
      });
    }
    started.clear();
    return results;
  }

  TempDir folder_;
  std::optional<NetnsLab> lab_;
};

TEST_F(Flux, OneLauncherPerNodeFindsTheOthers) {
  const auto results = run(1, {program("dtrain-launch"), "--nproc_per_node=2", "sh", "-c",
                               "echo rank $RANK of $WORLD_SIZE at $MASTER_ADDR pmi ${PMI_RANK-none}"});
  for (int node = 0; node < kNodes; ++node) {
    const RunResult& result = results[static_cast<std::size_t>(node)];
    EXPECT_EQ(result.exit_code, 0) << result.err;
    for (const int rank : {2 * node, 2 * node + 1})
      EXPECT_THAT(result.out, HasSubstr("rank " + std::to_string(rank) + " of 4 at 10.77.0.1 pmi none\n"));
  }
}

TEST_F(Flux, WorkersWithoutALauncherTrain) {
  const auto results =
      run(2, {program("dtrain"), "train", "--model", "mlp", "--dataset", "synthetic:1x6x6,10,64",
              "--max-steps", "4", "--batch-size", "4", "--run-dir", (folder_ / "run").string()});
  for (const RunResult& result : results) EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(results.front().out, HasSubstr("4 workers"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "run" / "summary.json"));
}

TEST_F(Flux, SeveralLaunchersOnANodeAreRefused) {
  for (const RunResult& result : run(2, {program("dtrain-launch"), "true"})) {
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.err, HasSubstr("flux run started 4 launchers on 2 nodes; expected one per node, which "
                                      "starts the workers itself: flux run "));
  }
}

}  // namespace
}  // namespace dtrain::test
