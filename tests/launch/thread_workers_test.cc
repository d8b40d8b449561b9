// --thread-workers through the programs: workers that are threads of one process give the bits of as many
// processes, go on from each other's checkpoints, and end together.
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
  void expect_refused(const std::vector<std::string>& more, const std::string& words) {
    expect_run_refused(training("refused", 2, 1, more), words);
  }
};

TEST_F(ThreadWorkersOption, GiveTheWeightsOfAsManyProcesses) {
  for (const std::vector<std::string>& form :
       {std::vector<std::string>{}, {"--shard=parameters"}, {"--mesh=dp=2,pp=2", "--micro-batches=4"}}) {
    const std::string name = form.empty() ? "plain" : form.front();
    const int workers = form.size() > 1 ? 4 : 3;
    expect_trained(training(name + "processes", 1, workers, form));
    expect_trained(training(name + "threads", workers, 1, form));
    EXPECT_EQ(losses(folder_ / (name + "threads")), losses(folder_ / (name + "processes"))) << name;
    expect_trained(training(name + "processes", 1, 1, {"--max-steps=7"}));  // whose checkpoint is one file
    expect_trained(training(name + "threads", 1, 1, {"--max-steps=7"}));
    EXPECT_EQ(final_weights(folder_ / (name + "threads")), final_weights(folder_ / (name + "processes")))
        << name;
  }
  for (const char* record : {"logs/samples-2.jsonl", "logs/rank-2.log"})
    EXPECT_TRUE(std::filesystem::exists(folder_ / "plainthreads" / record)) << record;
}

TEST_F(ThreadWorkersOption, AnyNumberGivesTheSameWeightsWithVirtualWorkers) {
  const std::vector<std::string> parts = {"--virtual-workers=8"};
  expect_trained(training("one", 1, 1, parts));
  for (const int workers : {2, 3, 5, 8}) {
    const std::string name = std::to_string(workers);
    expect_trained(training(name, workers, 1, parts));
    EXPECT_EQ(final_weights(folder_ / name), final_weights(folder_ / "one")) << workers << " threads";
  }
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

TEST_F(ThreadWorkersOption, SayWhatTheyDoNotGoWith) {
  expect_refused({"--device=cuda"}, "--device (from command line): expected CPUs with --thread-workers");
  expect_refused({"--devices=cuda:0,cuda:1"}, "--devices (from command line): expected CPUs");
  expect_refused({"--place=conv1=cuda:0,fc1=cuda:1"}, "--place (from command line): expected CPUs");
  expect_refused({"--backend=tcp"}, "--backend");
  expect_refused({"--peer-snapshots=1"}, "--peer-snapshots");
  expect_refused({"--servers=1"}, "--servers");
  expect_refused({"--mesh=dp=3"}, "expected exactly 3 ranks, got 2");
  expect_run_refused(training("both", 2, 2),
                     "--thread-workers (from command line): expected 1 in a job of 2");
}

}  // namespace
}  // namespace dtrain::test
