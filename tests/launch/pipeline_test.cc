// --pipeline through the programs: the weights of accumulation bit for bit, saved by stages and gone on with
// by any number of them.
#include "tests/launch/option_test.h"

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

TEST_F(PipelineOption, SaysWhatCannotBe) {
  expect_refused({"--pipeline", "2"}, "expected a number that 3 workers can be divided by, got 2", 3);
  expect_refused({"--pipeline", "5", "--micro-batches", "4"}, "one part for each of 5 stages, got 4 parts",
                 5);
  expect_refused({"--micro-batches", "4"}, "--pipeline N beside it", 2);
  expect_refused({"--pipeline", "2", "--accumulate", "2"}, "choose --micro-batches", 2);
  expect_refused({"--pipeline", "2", "--micro-batches", "5"},
                 "expected a multiple of 1 (workers) x 5 (passes)", 2);
  expect_refused({"--pipeline", "2", "--shard", "optimizer"}, "--shard", 2);
  const std::vector<std::string> laced = {"--pipeline", "2", "--schedule", "interleaved"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), laced.begin(), laced.end());
    return more;
  };
  expect_refused(with({"--micro-batches", "1"}), "expected a multiple of the 2 stages", 2);
  expect_refused(with({"--chunks", "3"}), "one part for each of 6 stages, got 4 parts", 2);
  expect_refused({"--pipeline", "2", "--chunks", "2"}, "--schedule interleaved beside it", 2);
  expect_refused({"--schedule", "gpipe"}, "--pipeline N beside it", 2);
}

}  // namespace
}  // namespace dtrain::test
