// --thread-workers through the programs: workers that are threads of one process write a log each and end
// together.
#include <signal.h>

#include <fstream>

#include "tests/launch/option_test.h"
#include "tests/launch/running.h"

namespace dtrain::test {
namespace {

using testing::HasSubstr;

class ThreadWorkersOption : public OptionTest {
 protected:
  /// `threads` workers in one process, or, where `processes` is not 1, as many processes.
  TrainingRun training(const std::string& name, int threads, int processes,
                       const std::vector<std::string>& more = {}) {
    std::vector<std::string> all = more;
    if (threads > 1) all.insert(all.end(), {"--thread-workers", std::to_string(threads)});
    return run_named(
        name, processes,
        {"--model=lenet", "--dataset=synthetic:1x28x28,10,128", "--global-batch-size=48", "--eval-every=1",
         "--optimizer=adamw", "--lr=0.002", "--log-every=1", "--log-samples", "--max-steps=6"},
        all);
  }
};

TEST_F(ThreadWorkersOption, WriteALogEach) {
  expect_trained(training("plain", 3, 1));
  for (const char* record : {"logs/samples-2.jsonl", "logs/rank-2.log"})
    EXPECT_TRUE(std::filesystem::exists(folder_ / "plain" / record)) << record;
}

TEST_F(ThreadWorkersOption, AnyAllReduceGivesTheSameWeights) {
  expect_trained(training("processes", 1, 4, {"--allreduce=tree"}));
  for (const std::string way : {"auto", "direct", "ring", "tree"}) {
    expect_trained(training(way, 4, 1, {"--allreduce=" + way}));
    EXPECT_EQ(final_weights(folder_ / way), final_weights(folder_ / "processes")) << way;
    EXPECT_THAT(read_file(folder_ / way / "logs/rank-3.log"),
                HasSubstr("backend threads, all-reduce " + way +
                          " on 1 host x 4 ranks: " + (way == "auto" ? "direct" : way)));
  }
  expect_run_refused(
      training("star", 4, 1, {"--allreduce=star"}),
      "--allreduce (from command line): expected one of auto, direct, ring, tree, hierarchical");
}

TEST_F(ThreadWorkersOption, EndTogether) {
  const RunResult diverged = train(training("diverged", 3, 1, {"--optimizer=sgd", "--lr=1e30"}));
  EXPECT_EQ(diverged.exit_code, 1);
  EXPECT_THAT(diverged.err, HasSubstr("the loss is nan"));

  Running process(command(training("stopped", 3, 1, {"--max-steps=1000000", "--checkpoint-every=0"})));
  const auto has_trained = [&] {
    std::string line;
    return static_cast<bool>(
        std::getline(std::ifstream(folder_ / "stopped" / "metrics.jsonl") >> std::ws, line));
  };
  ASSERT_TRUE(eventually(has_trained));
  process.signal(SIGTERM);
  EXPECT_EQ(process.wait(std::chrono::seconds(60)), 75);
  EXPECT_FALSE(std::filesystem::is_empty(folder_ / "stopped" / "checkpoints"));
}

}  // namespace
}  // namespace dtrain::test
