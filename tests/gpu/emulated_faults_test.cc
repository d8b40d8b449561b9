// GPUs that fail on purpose: a run ends within its deadline, says what happened on which rank, and leaves
// nobody behind.
#include <gtest/gtest.h>

#include <chrono>
#include <regex>

#include "tests/support/temp_dir.h"
#include "tests/support/training.h"

namespace dtrain::test {
namespace {

struct FaultCase {
  std::string name, fault;
  std::string expected;  ///< a regular expression for what the run says
};

class EmulatedFaults : public testing::TestWithParam<FaultCase> {};

// The limits are 5 s each, so that a run that hangs is far beyond them.
constexpr std::chrono::seconds kEnds{40};

TEST_P(EmulatedFaults, EndTheRunWithItsCause) {
  const FaultCase& given = GetParam();
  for (const std::string graph : {"off", "on"}) {
    SCOPED_TRACE("graph " + graph);
    TempDir folder;
    write_small_dataset(folder / "data", 640, 32);
    const std::string mark = folder.path().string() + "-" + graph;
    TrainingRun run{
        .start = Start::launcher,
        .world = 2,
        .launcher_arguments = {"--emulated-gpus=2"},
        .arguments = {"--device", "cuda", "--model", "lenet", "--data-dir", (folder / "data").string(),
                      "--epochs", "20", "--global-batch-size", "64", "--eval-every", "0", "--cuda-graph",
                      graph, "--collective-timeout", "5", "--connect-timeout", "5"},
        .run_dir = folder / "run",
        .options = limited_to(kEnds)};
    run.options.environment["DTRAIN_EMULATED_FAULTS"] = given.fault;
    run.options.environment["DTRAIN_TEST_MARK"] = mark;
    const RunResult result = train(run);
    EXPECT_NE(result.exit_code, 0);
    EXPECT_FALSE(result.timed_out) << result.err;
    EXPECT_TRUE(std::regex_search(result.err, std::regex(given.expected))) << result.err;
    EXPECT_EQ(count_marked("DTRAIN_TEST_MARK", mark), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, EmulatedFaults,
    testing::Values(
        FaultCase{"illegal_address", "launch=illegal-address@300#1", "rank 1.*illegal memory access"},
        FaultCase{"ecc", "launch=ecc@300#0", "rank 0.*uncorrectable ECC error"},
        FaultCase{"out_of_memory", "memory=out@100#1", "out of memory: [0-9]+ bytes asked for"},
        FaultCase{"hanging_collective", "collective=hang@9#1", "all_reduce"},
        FaultCase{"failing_collective", "collective=fail@9#1", "NCCL failed: unhandled system error"},
        FaultCase{"peer_that_never_connects", "connect=hang#1", "gave up after 5.0 s"},
        FaultCase{"peer_that_dies_connecting", "connect=die#1", "SIGKILL|signal 9|killed"}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace dtrain::test
