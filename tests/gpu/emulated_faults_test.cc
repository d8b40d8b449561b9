// GPUs that fail on purpose: a run ends within its deadline, says what happened on which rank, and leaves
// nobody behind.
#include <gtest/gtest.h>

#include <signal.h>

#include <chrono>
#include <filesystem>
#include <future>
#include <regex>
#include <thread>

#include "runtime/base/clock.h"
#include "tests/support/temp_dir.h"
#include "tests/support/training.h"

namespace dtrain::test {
namespace {

struct FaultCase {
  std::string name, fault;
  std::string expected;        ///< a regular expression for what the run says
  bool only_recorded = false;  ///< it cannot happen without a graph
};

class EmulatedFaults : public testing::TestWithParam<FaultCase> {};

// The limits are 5 s each, so that a run that hangs is far beyond them.
constexpr std::chrono::seconds kEnds{120};

void ends_with_its_cause(const FaultCase& given, const std::regex& expected, const std::string& graph) {
  TempDir folder;
  write_small_dataset(folder / "data", 640, 32);
  const std::string mark = folder.path().string() + "-" + graph;
  TrainingRun run{
      .start = Start::launcher,
      .world = 2,
      .launcher_arguments = {"--emulated-gpus=2"},
      .arguments = {"--device", "cuda", "--model", "lenet", "--data-dir", (folder / "data").string(),
                    "--epochs", "20", "--global-batch-size", "64", "--eval-every", "0", "--cuda-graph", graph,
                    "--collective-timeout", "5", "--connect-timeout", "5"},
      .run_dir = folder / "run",
      .options = limited_to(kEnds)};
  run.options.environment["DTRAIN_EMULATED_FAULTS"] = given.fault;
  run.options.environment["DTRAIN_TEST_MARK"] = mark;
  const RunResult result = train(run);
  EXPECT_NE(result.exit_code, 0) << "graph " << graph;
  EXPECT_TRUE(std::regex_search(result.err, expected)) << "graph " << graph << ": " << result.err;
  EXPECT_EQ(count_marked("DTRAIN_TEST_MARK", mark), 0) << "graph " << graph;
}

// Both at once: most of the time is spent waiting.
TEST_P(EmulatedFaults, EndTheRunWithItsCause) {
  const FaultCase& given = GetParam();
  // Threads must not compile expressions side by side in libstdc++.
  const std::regex expected(given.expected);
  const auto recorded = std::async(std::launch::async, [&] { ends_with_its_cause(given, expected, "on"); });
  if (!given.only_recorded) ends_with_its_cause(given, expected, "off");
  recorded.wait();
}

// A worker with its GPU is lost in a run of recorded steps, and all start again from the last checkpoint: the
// run ends as one that nothing happened to.
TEST(EmulatedGpus, OneThatIsLostCostsNoMoreThanARestart) {
  std::vector<std::size_t> weights;
  for (const bool disturbed : {false, true}) {
    TempDir folder;
    write_small_dataset(folder / "data", 640, 32);
    TrainingRun run{.start = Start::launcher,
                    .world = 2,
                    .launcher_arguments = {"--emulated-gpus=2", "--max-restarts=2"},
                    .arguments = {"--device",
                                  "cuda",
                                  "--model",
                                  "lenet",
                                  "--data-dir",
                                  (folder / "data").string(),
                                  "--epochs",
                                  "4",
                                  "--global-batch-size",
                                  "64",
                                  "--eval-every",
                                  "0",
                                  "--log-every",
                                  "1",
                                  "--checkpoint-every",
                                  "8",
                                  "--cuda-graph",
                                  "on",
                                  "--resume",
                                  "auto",
                                  "--collective-timeout",
                                  "10"},
                    .run_dir = folder / "run",
                    .options = limited_to(kEnds)};
    const std::string mark = run.run_dir.string();
    run.options.environment["DTRAIN_TEST_MARK"] = mark;
    if (disturbed) {
      run.options.while_running = [&](pid_t) {
        const Deadline deadline = Deadline::after(kEnds);
        while (!deadline.expired() && !(std::filesystem::exists(run.run_dir / "metrics.jsonl") &&
                                        losses(run.run_dir).size() >= 15)) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        const auto ranks = ranks_marked("DTRAIN_TEST_MARK", mark);
        ASSERT_TRUE(ranks.contains(1)) << "the run was over before it was disturbed";
        ::kill(ranks.at(1), SIGKILL);
      };
    }
    const RunResult result = train(run);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.err.find("restart") != std::string::npos, disturbed) << result.err;
    weights.push_back(final_weights(run.run_dir));
    EXPECT_EQ(count_marked("DTRAIN_TEST_MARK", mark), 0);
  }
  EXPECT_EQ(weights[0], weights[1]);
}

// A GPU that takes four times as long is waited for: the weights are those of two like ones.
TEST(EmulatedGpus, OneThatIsSlowChangesNothingButTime) {
  std::vector<std::future<std::size_t>> weights;
  for (const std::string fault : {"", "speed=slow:4#1"}) {
    weights.push_back(std::async(std::launch::async, [fault] {
      TempDir folder;
      write_small_dataset(folder / "data", 96, 32);
      TrainingRun run{
          .start = Start::launcher,
          .world = 2,
          .launcher_arguments = {"--emulated-gpus=2"},
          .arguments = {"--device", "cuda", "--model", "mlp", "--data-dir", (folder / "data").string(),
                        "--max-steps", "12", "--global-batch-size", "16", "--eval-every", "0"},
          .run_dir = folder / "run",
          .options = limited_to(kEnds)};
      run.options.environment["DTRAIN_EMULATED_FAULTS"] = fault;
      const RunResult result = train(run);
      EXPECT_EQ(result.exit_code, 0) << result.err;
      return final_weights(run.run_dir);
    }));
  }
  EXPECT_EQ(weights[0].get(), weights[1].get());
}

INSTANTIATE_TEST_SUITE_P(
    All, EmulatedFaults,
    testing::Values(
        FaultCase{"illegal_address", "launch=illegal-address@300#1", "rank 1.*illegal memory access"},
        FaultCase{"ecc", "launch=ecc@300#0", "rank 0.*uncorrectable ECC error"},
        FaultCase{"out_of_memory", "memory=out@100#1", "out of memory: [0-9]+ bytes asked for"},
        FaultCase{"out_of_memory_above", "memory=above:30000#1", "out of memory: [0-9]+ bytes asked for"},
        FaultCase{"peer_that_dies_recording", "recording=die#1", "SIGKILL|signal 9|killed", true},
        FaultCase{"hanging_collective", "collective=hang@11#1", "all_reduce"},
        FaultCase{"failing_collective", "collective=fail@11#1", "NCCL failed: unhandled system error"},
        FaultCase{"peer_that_never_connects", "connect=hang#1", "gave up after 5.0 s"},
        FaultCase{"peer_that_dies_connecting", "connect=die#1", "SIGKILL|signal 9|killed"}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace dtrain::test
