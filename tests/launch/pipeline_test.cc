// --pipeline through the programs: the weights of accumulation bit for bit, saved by stages and gone on with
// by any number of them.
#include <cmath>
#include <fstream>

#include "tests/launch/option_test.h"
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
  void expect_refused(const std::vector<std::string>& more, const std::string& words, int world) {
    expect_run_refused(training("refused", world, 1, more), words);
  }
};

TEST_F(PipelineOption, GivesTheWeightsOfAccumulation) {
  const std::vector<std::string> plain = {"--accumulate", "4"};
  expect_trained(training("plain", 1, 7, plain));
  expect_trained(training("piped", 2, 2, {"--pipeline", "2", "--micro-batches", "4"}));
  expect_trained(training("piped", 4, 4, {"--pipeline", "4", "--micro-batches", "4", "--schedule", "gpipe"}));
  expect_trained(training("piped", 3, 6, {"--mesh", "pp=3", "--micro-batches", "4"}));
  expect_trained(
      training("laced", 2, 4, {"--pipeline", "2", "--micro-batches", "4", "--schedule", "interleaved"}));
  expect_trained(training("laced", 1, 7, plain));
  expect_trained(training("piped", 1, 7, plain));  // whose checkpoint is one file
  for (const char* name : {"piped", "laced"}) {
    EXPECT_EQ(losses(folder_ / name), losses(folder_ / "plain")) << name;
    EXPECT_EQ(final_weights(folder_ / name), final_weights(folder_ / "plain")) << name;
  }
  EXPECT_DOUBLE_EQ(last_accuracy(folder_ / "piped"), last_accuracy(folder_ / "plain"));
}

TEST_F(PipelineOption, GoesTogetherWithDataParallelism) {
  const std::vector<std::string> limit = {"--clip-grad-norm", "0.05"};
  std::vector<std::string> plain = {"--accumulate", "4"},
                           grid = {"--mesh", "dp=2,pp=2", "--micro-batches", "4"};
  plain.insert(plain.end(), limit.begin(), limit.end());
  grid.insert(grid.end(), limit.begin(), limit.end());
  expect_trained(training("plain", 2, 4, plain));
  expect_trained(training("grid", 4, 4, grid));
  const auto expected = losses(folder_ / "plain"), got = losses(folder_ / "grid");
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-5) << i;

  grid.insert(grid.end(), {"--compress", "bf16"});
  expect_trained(training("thin", 4, 4, grid));
  const auto thin = losses(folder_ / "thin");
  ASSERT_EQ(thin.size(), expected.size());
  for (std::size_t i = 0; i < thin.size(); ++i) EXPECT_NEAR(thin[i], expected[i], 1e-2) << i;
  EXPECT_NE(thin, got) << "gradients of 8 bits";
}

// Who updates a parameter does not change its bits, nor does the number of stages among which it is one.
TEST_F(PipelineOption, SharesTheOptimizersStateOutAmongCopies) {
  const auto with = [](const std::string& mesh, std::vector<std::string> more) {
    more.insert(more.end(), {"--mesh", mesh, "--micro-batches", "4", "--clip-grad-norm", "0.05"});
    return more;
  };
  const std::vector<std::string> partitioned = {"--shard", "optimizer"};
  expect_trained(training("grid", 4, 6, with("dp=2,pp=2", {})));
  expect_trained(training("changing", 4, 2, with("dp=2,pp=2", partitioned)));
  expect_trained(training("changing", 4, 3, with("dp=2,pp=2", {})));
  expect_trained(training("changing", 6, 5, with("dp=2,pp=3", partitioned)));
  expect_trained(training("changing", 4, 6, with("dp=2,pp=2", partitioned)));
  EXPECT_EQ(losses(folder_ / "changing"), losses(folder_ / "grid"));
  expect_trained(training("thin", 4, 3, with("dp=2,pp=2", {"--compress", "bf16"})));
  expect_trained(
      training("thin-partitioned", 4, 3, with("dp=2,pp=2", {"--compress", "bf16", "--shard", "optimizer"})));
  EXPECT_EQ(losses(folder_ / "thin-partitioned"), losses(folder_ / "thin"));
  expect_trained(training("changing", 1, 7, {"--accumulate", "4"}));  // whose checkpoint is one file
  expect_trained(training("grid", 1, 7, {"--accumulate", "4"}));
  EXPECT_EQ(final_weights(folder_ / "changing"), final_weights(folder_ / "grid"));
}

// Each micro-batch's gradients go to their owners, as those of a pass do without stages. Ranges go on in any
// grid.
TEST_F(PipelineOption, CutsGradientsAndParametersIntoRanges) {
  const auto shared = [](const std::string& what, const std::string& schedule) -> std::vector<std::string> {
    return {"--mesh", "dp=2,pp=2", "--micro-batches", "4", "--shard", what, "--schedule", schedule};
  };
  const auto accumulated = [](const std::string& what) -> std::vector<std::string> {
    return {"--accumulate", "4", "--shard", what};
  };
  for (const std::string what : {"gradients", "parameters"}) {
    const std::string run = "changing-" + what, laced = "laced-" + what;
    expect_trained(training(what, 2, 6, accumulated(what)));
    expect_trained(training(run, 4, 2, shared(what, "1f1b")));
    expect_trained(training(run, 2, 3, accumulated(what)));
    expect_trained(training(run, 4, 6, shared(what, "gpipe")));
    expect_trained(training(laced, 4, 6, shared(what, "interleaved")));
    for (const std::string& name : {what, run, laced})
      expect_trained(training(name, 1, 7, {"--accumulate", "4"}));  // whose checkpoint is one file
    for (const std::string& name : {run, laced}) {
      EXPECT_EQ(losses(folder_ / name), losses(folder_ / what)) << name;
      EXPECT_EQ(final_weights(folder_ / name), final_weights(folder_ / what)) << name;
      EXPECT_DOUBLE_EQ(last_accuracy(folder_ / name), last_accuracy(folder_ / what)) << name;
    }
  }
}

// The parts of a batch are the micro-batches: one run for any number of copies and stages, in mid-epoch too.
TEST_F(PipelineOption, HasTheBitsOfVirtualWorkersForAnyNumberOfCopies) {
  const auto parts = [](std::vector<std::string> form) {
    form.insert(form.end(), {"--virtual-workers", "4", "--clip-grad-norm", "0.05"});
    return form;
  };
  expect_trained(training("one", 1, 6, parts({})));
  expect_trained(training("changing", 4, 2, parts({"--pipeline", "2"})));
  expect_trained(training("changing", 6, 3, parts({"--pipeline", "2", "--schedule", "gpipe"})));
  expect_trained(training("changing", 3, 4, parts({"--pipeline", "3", "--shard", "optimizer"})));
  expect_trained(training("changing", 2, 5, parts({})));
  expect_trained(training("changing", 1, 6, parts({})));
  EXPECT_EQ(final_weights(folder_ / "changing"), final_weights(folder_ / "one"));
}

// What gradients lost, from the 11th step on, goes on with the run wherever the network is cut.
TEST_F(PipelineOption, CompressesWithTheBitsOfDataParallelism) {
  const auto compressed = [](std::vector<std::string> form) {
    form.insert(form.end(), {"--compress", "powersgd:2", "--checkpoint-every", "12", "--eval-every", "0"});
    return form;
  };
  const auto copies = compressed({"--accumulate", "4"}),
             stages = compressed({"--mesh", "dp=2,pp=2", "--micro-batches", "4"});
  expect_trained(training("plain", 2, 14, {"--accumulate", "4"}));
  expect_trained(training("copies", 2, 14, copies));
  expect_trained(training("changing", 4, 12, stages));
  expect_trained(training("changing", 2, 14, copies));
  EXPECT_EQ(final_weights(folder_ / "changing"), final_weights(folder_ / "copies"));
  EXPECT_NE(final_weights(folder_ / "plain"), final_weights(folder_ / "copies"));
  expect_trained(training("back", 2, 12, copies));
  expect_trained(training("back", 4, 14, stages));
  expect_trained(training("back", 2, 15, copies));
  expect_trained(training("copies", 2, 15, copies));
  EXPECT_EQ(final_weights(folder_ / "back"), final_weights(folder_ / "copies"));
}

/// How many steps of the run overflowed, by its metrics.
std::int64_t skipped_steps(const std::filesystem::path& run_dir) {
  std::ifstream in(run_dir / "metrics.jsonl");
  std::int64_t skipped = -1;
  for (std::string line; std::getline(in, line);) {
    const auto event = test::Json::parse(line);
    if (event.contains("skipped_steps")) skipped = event["skipped_steps"].get<std::int64_t>();
  }
  return skipped;
}

/// What the run's records say that it chose.
std::string chosen_stages(const std::filesystem::path& run_dir) {
  const test::Json config = test::Json::read(run_dir / "config.json");
  return config.contains("chosen") ? config["chosen"]["stages"].get<std::string>() : "";
}

TEST_F(PipelineOption, GivesTheSameWeightsWhereverItIsCut) {
  const std::vector<std::string> limit = {"--clip-grad-norm", "0.05"};
  const auto trained = [&](const std::string& name, int world, int steps, std::vector<std::string> more) {
    more.insert(more.end(), limit.begin(), limit.end());
    return expect_trained(training(name, world, steps, more)).out;
  };
  const std::vector<std::string> piped = {"--pipeline", "2", "--micro-batches", "4"};
  const auto stages = [&](const std::string& where, std::vector<std::string> more = {}) {
    more.insert(more.begin(), piped.begin(), piped.end());
    more.insert(more.end(), {"--stages", where});
    return more;
  };
  trained("plain", 1, 7, {"--accumulate", "4"});
  trained("listed", 2, 6, stages("0,1"));
  trained("laced", 2, 6, stages("auto", {"--schedule", "interleaved"}));
  trained("devices", 1, 6, stages("0,3", {"--devices", "cpu:0,cpu:1"}));
  EXPECT_EQ(chosen_stages(folder_ / "listed"), "") << "was asked for";
  EXPECT_EQ(chosen_stages(folder_ / "laced"), "0,1,2,3") << "four parts, four chunks";

  const std::string first = trained("chosen", 2, 3, stages("auto"));
  const std::string chosen = chosen_stages(folder_ / "chosen");
  EXPECT_THAT(first, testing::HasSubstr("stages: " + chosen + "\n"));
  EXPECT_EQ(first.find("stages: "), first.rfind("stages: ")) << "said once";
  EXPECT_THAT(trained("chosen", 2, 5, stages("auto")),
              testing::HasSubstr("stages: " + chosen + ", as the run began"));
  EXPECT_EQ(chosen_stages(folder_ / "chosen"), chosen);
  EXPECT_THAT(trained("chosen", 2, 6, stages("even")), testing::Not(testing::HasSubstr("stages: ")));
  for (const char* name : {"listed", "laced", "devices", "chosen"}) {
    trained(name, 1, 7, {"--accumulate", "4"});  // whose checkpoint is one file
    EXPECT_EQ(losses(folder_ / name), losses(folder_ / "plain")) << name;
    EXPECT_EQ(final_weights(folder_ / name), final_weights(folder_ / "plain")) << name;
  }
}

// The bits of one process. None of these steps overflows: agreement_test.cc has those that do.
TEST_F(PipelineOption, TakesFloat16) {
  const auto trained = [&](const std::string& name, int world, std::vector<std::string> more) {
    more.insert(more.end(), {"--precision", "fp16"});
    expect_trained(training(name, world, 6, more));
    return losses(folder_ / name);
  };
  const auto expected = trained("plain", 1, {"--accumulate", "4"});
  EXPECT_EQ(trained("piped", 3, {"--pipeline", "3", "--micro-batches", "4"}), expected);
  EXPECT_EQ(skipped_steps(folder_ / "piped"), skipped_steps(folder_ / "plain"));
  const auto grid = trained("grid", 4, {"--mesh", "dp=2,pp=2", "--micro-batches", "4"});
  ASSERT_EQ(grid.size(), expected.size());
  for (std::size_t i = 0; i < grid.size(); ++i) EXPECT_NEAR(grid[i], expected[i], 2e-2) << i;
}

// Statistics are those of a micro-batch on both copies of a stage: the whole one that one process has.
TEST_F(PipelineOption, SynchronizesBatchNormAmongCopies) {
  const std::vector<std::string> net = {"--model=resnet18", "--dataset=synthetic:3x8x8,4,48",
                                        "--global-batch-size=16", "--lr=0.001", "--optimizer=sgd"};
  const auto trained = [&](const std::string& name, int world, std::vector<std::string> more) {
    more.insert(more.begin(), net.begin(), net.end());
    expect_trained(training(name, world, 3, more));
    return losses(folder_ / name);
  };
  const auto expected = trained("plain", 1, {"--accumulate", "2"});
  const std::vector<std::string> mesh = {"--mesh", "dp=2,pp=2", "--micro-batches", "2"};
  std::vector<std::string> synced = mesh;
  synced.push_back("--sync-batch-norm");
  const auto grid = trained("grid", 4, synced), apart = trained("apart", 4, mesh);
  ASSERT_EQ(grid.size(), expected.size());
  for (std::size_t i = 0; i < grid.size(); ++i) EXPECT_NEAR(grid[i], expected[i], 1e-4) << i;
  EXPECT_GT(std::abs(apart.back() - expected.back()), 1e-3) << "each copy its own statistics";
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

TEST_F(PipelineOption, SaysWhatCannotBe) {
  expect_refused({"--pipeline", "2"}, "expected a divisor of the 3 workers, got 2", 3);
  expect_refused({"--pipeline", "5", "--micro-batches", "4"}, "one part for each of 5 stages, got 4 parts",
                 5);
  expect_refused({"--micro-batches", "4"}, "--pipeline N with it", 2);
  expect_refused({"--pipeline", "2", "--accumulate", "2"}, "choose --micro-batches", 2);
  expect_refused({"--pipeline", "2", "--micro-batches", "5"},
                 "expected a multiple of 1 (workers) x 5 (passes)", 2);
  expect_refused({"--pipeline", "2", "--shard", "gradients", "--compress", "bf16"},
                 "none with --shard gradients and parameters", 2);
  expect_refused({"--pipeline", "2", "--shard", "parameters", "--optimizer", "lars"},
                 "where workers hold parts of layers", 2);
  expect_refused({"--pipeline", "2", "--virtual-workers", "4", "--micro-batches", "4"},
                 "nothing with --virtual-workers, whose parts are the micro-batches", 2);
  expect_refused({"--pipeline", "2", "--virtual-workers", "4", "--schedule", "interleaved"},
                 "expected 1f1b or gpipe with --virtual-workers", 2);
  expect_refused({"--pipeline", "2", "--virtual-workers", "2"}, "each of 3 groups of workers, got 2", 6);
  expect_refused({"--pipeline", "2", "--shard", "optimizer", "--shard-group", "2"}, "--shard-group", 2);
  const std::vector<std::string> laced = {"--pipeline", "2", "--schedule", "interleaved"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), laced.begin(), laced.end());
    return more;
  };
  expect_refused(with({"--micro-batches", "1"}), "expected a multiple of the 2 stages", 2);
  expect_refused(with({"--chunks", "3"}), "one part for each of 6 stages, got 4 parts", 2);
  expect_refused({"--pipeline", "2", "--chunks", "2"}, "--schedule interleaved with it", 2);
  expect_refused({"--schedule", "gpipe"}, "--pipeline N with it", 2);
  expect_refused({"--pipeline", "2", "--sync-batch-norm"}, "expected a model with batch norm", 2);
  expect_refused({"--stages", "auto"}, "even, or --pipeline N with it", 2);
  expect_refused({"--pipeline", "2", "--stages", "some"}, "expected even, auto, or the number", 2);
  expect_refused({"--pipeline", "2", "--stages", "1,2"}, "the first stage to begin at part 0, got 1", 2);
  expect_refused({"--pipeline", "3", "--stages", "0,2,1"}, "that ascend, got 1 behind 2", 3);
  expect_refused({"--pipeline", "2", "--stages", "0,1,2"}, "each of 2 stages, 2 numbers, got 3 (0,1,2)", 2);
  expect_refused(with({"--stages", "0,1"}), "2 chunks in each of 2 stages, 4 numbers, got 2", 2);
  expect_refused({"--pipeline", "2", "--stages", "0,4"}, "of the parts 0 to 3, got 0,4", 2);
  expect_refused({"--pipeline", "5", "--stages", "auto", "--micro-batches", "4"},
                 "one part for each of 5 stages, got 4 parts", 5);
}

}  // namespace
}  // namespace dtrain::test
