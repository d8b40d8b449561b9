// --shard through the programs: the weights of plain data parallelism, saved by some workers and gone on with
// by others, with every optimizer and limit on gradients.
#include "tests/launch/option_test.h"

namespace dtrain::test {
namespace {

using testing::HasSubstr;

class ShardOption : public OptionTest {
 protected:
  TrainingRun training(const std::string& name, int world, const std::string& shard, int steps,
                       const std::vector<std::string>& more = {}) {
    return run_named(
        name, world,
        {"--model=lenet", "--dataset=synthetic:1x28x28,10,512", "--global-batch-size=48", "--eval-every=0",
         "--optimizer=adamw", "--lr=0.002", "--shard=" + shard, "--max-steps=" + std::to_string(steps)},
        more);
  }
};

TEST_F(ShardOption, GivesTheWeightsOfDataParallelism) {
  expect_trained(training("plain", 2, "none", 6));
  for (const char* shard : {"optimizer", "gradients"}) {
    expect_trained(training(shard, 2, shard, 5));
    expect_trained(training(shard, 2, "none", 6));  // whose checkpoint is one file
    EXPECT_EQ(final_weights(folder_ / shard), final_weights(folder_ / "plain")) << shard;
  }
}

TEST_F(ShardOption, GoesOnWithAnotherNumberOfWorkers) {
  expect_trained(training("plain", 4, "none", 2));
  expect_trained(training("plain", 3, "none", 4));
  expect_trained(training("plain", 1, "none", 6));
  expect_trained(training("cut", 4, "gradients", 2));
  expect_trained(training("cut", 3, "gradients", 4));
  expect_trained(training("cut", 1, "gradients", 6));
  EXPECT_EQ(losses(folder_ / "cut"), losses(folder_ / "plain"));
  EXPECT_EQ(final_weights(folder_ / "cut"), final_weights(folder_ / "plain"));
}

TEST_F(ShardOption, GradientsMayBeCompressedInstead) {
  expect_trained(training("plain", 2, "none", 14));
  const auto plain = losses(folder_ / "plain");
  for (const char* how : {"fp16", "bf16", "powersgd:2"}) {
    expect_trained(training(how, 2, "none", 14, {"--compress", how}));
    const auto compressed = losses(folder_ / how);
    ASSERT_EQ(compressed.size(), plain.size());
    EXPECT_NE(final_weights(folder_ / how), final_weights(folder_ / "plain")) << how;
    EXPECT_NEAR(compressed.back(), plain.back(), 0.25) << how;
  }
  const RunResult both = train(training("both", 2, "gradients", 2, {"--compress", "bf16"}));
  EXPECT_NE(both.exit_code, 0);
  EXPECT_THAT(both.err, HasSubstr("--compress"));
}

TEST_F(ShardOption, ParametersMayBeAveragedNowAndThenInstead) {
  const auto sgd = [](const char* every) {
    return std::vector<std::string>{"--optimizer", "sgd", "--lr",         "0.05",
                                    "--momentum",  "0.9", "--sync-every", every};
  };
  expect_trained(training("plain", 2, "none", 12, sgd("0")));
  expect_trained(training("each", 2, "none", 12, sgd("1")));
  expect_trained(training("some", 2, "none", 12, sgd("4")));
  const auto plain = losses(folder_ / "plain"), each = losses(folder_ / "each"),
             some = losses(folder_ / "some");
  ASSERT_EQ(each.size(), plain.size());
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_NEAR(each[i], plain[i], 1e-5) << i;
  EXPECT_NE(final_weights(folder_ / "some"), final_weights(folder_ / "plain"));
  EXPECT_NEAR(some.back(), plain.back(), 0.25);

  const RunResult both = train(training("both", 2, "optimizer", 2, sgd("4")));
  EXPECT_NE(both.exit_code, 0);
  EXPECT_THAT(both.err, HasSubstr("--shard"));
}

TEST_F(ShardOption, LayersMayHaveRatesOfTheirOwn) {
  for (const char* name : {"lars", "lamb"}) {
    const std::vector<std::string> rule = {"--optimizer", name, "--lr", name[2] == 'r' ? "1" : "0.01",
                                           "--log-every", "1"};
    expect_trained(training(name, 2, "none", 12, rule));
    EXPECT_LT(losses(folder_ / name).back(), losses(folder_ / name).front()) << name;
    const RunResult refused = train(training("parts", 2, "optimizer", 2, rule));
    EXPECT_NE(refused.exit_code, 0);
    EXPECT_THAT(refused.err, HasSubstr("--optimizer")) << name;
  }
}

TEST_F(ShardOption, KnowsWhatItCanShard) {
  const RunResult result = train(training("refused", 2, "weights", 2));
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("--shard"));
  EXPECT_THAT(result.err, HasSubstr("none, optimizer"));
}

}  // namespace
}  // namespace dtrain::test
