// --pipeline through the programs: which stages it chooses, how workers that do not fit together are named,
// and what cannot be.
#include <signal.h>

#include <memory>

#include "tests/launch/option_test.h"
#include "tests/launch/running.h"
#include "tests/support/json.h"

namespace dtrain::test {
namespace {

class PipelineOption : public OptionTest {
 protected:
  TrainingRun training(const std::string& name, int world, int steps, const std::vector<std::string>& more) {
    return run_named(
        name, world,
        {"--model=lenet", "--dataset=synthetic:1x28x28,10,96", "--global-batch-size=32", "--threads=1",
         "--log-every=1", "--optimizer=adamw", "--lr=0.002", "--max-steps=" + std::to_string(steps)},
        more);
  }
};

/// What the run's records say that it chose.
std::string chosen_stages(const std::filesystem::path& run_dir) {
  const test::Json config = test::Json::read(run_dir / "config.json");
  return config.contains("chosen") ? config["chosen"]["stages"].get<std::string>() : "";
}

TEST_F(PipelineOption, ChoosesItsStagesOnceAndSaysWhich) {
  const auto stages = [&](const std::string& name, int steps, const std::string& where,
                          std::vector<std::string> more = {}) {
    more.insert(more.end(), {"--pipeline", "2", "--micro-batches", "4", "--stages", where});
    return expect_trained(training(name, 2, steps, more)).out;
  };
  stages("listed", 1, "0,1");
  EXPECT_EQ(chosen_stages(folder_ / "listed"), "") << "was asked for";
  stages("laced", 1, "auto", {"--schedule", "interleaved"});
  EXPECT_EQ(chosen_stages(folder_ / "laced"), "0,1,2,3") << "four parts, four chunks";

  const std::string first = stages("chosen", 3, "auto"), chosen = chosen_stages(folder_ / "chosen");
  EXPECT_THAT(first, testing::HasSubstr("stages: " + chosen + "\n"));
  EXPECT_EQ(first.find("stages: "), first.rfind("stages: ")) << "said once";
  EXPECT_THAT(stages("chosen", 5, "auto"),
              testing::HasSubstr("stages: " + chosen + ", as at the start of the run"));
  EXPECT_EQ(chosen_stages(folder_ / "chosen"), chosen);
  EXPECT_THAT(stages("chosen", 6, "even"), testing::Not(testing::HasSubstr("stages: ")));
  expect_trained(training("plain", 1, 6, {"--accumulate", "4"}));
  EXPECT_EQ(losses(folder_ / "chosen"), losses(folder_ / "plain"));
}

TEST_F(PipelineOption, WorkersThatWereStartedDifferentlyAreNamed) {
  for (const char* other : {"--mesh=dp=2,pp=2", "--global-batch-size=48", "--schedule=gpipe"}) {
    TrainingRun run = training("different", 4, 4, {"--mesh", "dp=1,pp=4", "--micro-batches", "4"});
    run.program = {"sh", "-c", "[ $RANK = 2 ] && set -- \"$@\" \"$OTHER\"; exec \"$0\" \"$@\"",
                   program("dtrain"), "train"};
    run.options.environment["OTHER"] = other;
    const std::string option = std::string(other).substr(0, std::string(other).find('='));
    const auto start = std::chrono::steady_clock::now();
    expect_run_refused(run, option + ": expected ");
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(15)) << other;
  }
}

// Before the workers have met, and after, when they know how many parts there are. The others are ended
// before they say it; on a machine that stands still for long they may be quicker.
TEST_F(PipelineOption, WhatAllWorkersFindWrongIsSaidOnce) {
  const std::vector<std::pair<const char*, const char*>> wrong = {
      {"2", "dtrain: rank 0: --pipeline: expected"},
      {"5", "dtrain: rank 0: pipeline: expected a network of at least one part for each of 5 stages, got 4"}};
  for (const auto& [stages, words] : wrong) {
    bool once = false;
    for (int attempt = 0; attempt < 5 && !once; ++attempt) {
      const RunResult result =
          train(training("refused", 5, 1, {"--pipeline", stages, "--micro-batches", "4"}));
      EXPECT_THAT(result.err, testing::HasSubstr(words));
      once = true;
      for (int rank = 1; rank < 5; ++rank)
        once = once && result.err.find("dtrain: rank " + std::to_string(rank) + ": ") == std::string::npos;
    }
    EXPECT_TRUE(once) << stages;
  }
}

// Without a launcher, which would end the others: they are in several groups with the one that is stopped,
// and would take leave of it in each for seconds.
TEST_F(PipelineOption, WorkersWhosePeerIsStoppedEndTogether) {
  const std::string port = std::to_string(free_port());
  std::vector<std::unique_ptr<Running>> workers;
  for (int rank = 0; rank < 3; ++rank) {
    TrainingRun run =
        training("stopped", 1, 1000000,
                 {"--pipeline=3", "--micro-batches=4", "--eval-every=0", "--collective-timeout=2"});
    workers.push_back(std::make_unique<Running>(
        command(run), std::map<std::string, std::string>{{"RANK", std::to_string(rank)},
                                                         {"LOCAL_RANK", std::to_string(rank)},
                                                         {"WORLD_SIZE", "3"},
                                                         {"LOCAL_WORLD_SIZE", "3"},
                                                         {"MASTER_ADDR", "127.0.0.1"},
                                                         {"MASTER_PORT", port}}));
  }
  Running &stopped = *workers[0], &neighbour = *workers[1], &last = *workers[2];
  ASSERT_TRUE(eventually([&] { return stopped.out().find("step 1/") != std::string::npos; }))
      << stopped.out() << stopped.err();
  stopped.signal(SIGSTOP);
  const auto ended = [](Running& worker) { return worker.wait(std::chrono::milliseconds(1)) != -1; };
  EXPECT_TRUE(eventually([&] { return ended(neighbour) && ended(last); }, std::chrono::seconds(12)));
  EXPECT_THAT(neighbour.err(), testing::HasSubstr("rank 0 on"));
  EXPECT_EQ(neighbour.wait(), 4) << neighbour.err();
  EXPECT_EQ(last.wait(), 4) << last.err();
}

}  // namespace
}  // namespace dtrain::test
