// --shard through the programs: the weights of plain data parallelism, saved by some workers and gone on with
// by others, with every optimizer and limit on gradients.
#include <fstream>

#include "tests/launch/option_test.h"

namespace dtrain::test {
namespace {

using testing::HasSubstr;

class ShardOption : public OptionTest {
 protected:
  void expect_near(const std::string& name, const std::vector<double>& expected) {
    const auto got = losses(folder_ / name);
    ASSERT_LE(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-5) << name << " " << i;
  }
  /// 25 million elements take 400 MB with Adam, a quarter of them 100.
  static constexpr int kLimitMib = 450;

  void write_words() {
    std::ofstream words(folder_ / "words.txt");
    for (int i = 0; i < 400; ++i) words << "the cat sat on mat number " << i * i % 97 << ";\n";
  }
  TrainingRun training(const std::string& name, int world, const std::string& shard, int steps,
                       const std::vector<std::string>& more = {}) {
    return run_named(name, world,
                     {"--model=lenet", "--dataset=synthetic:1x28x28,10,512", "--global-batch-size=48",
                      "--eval-every=0", "--optimizer=adamw", "--lr=0.002", "--log-every=1",
                      "--shard=" + shard, "--max-steps=" + std::to_string(steps)},
                     more);
  }
};

TEST_F(ShardOption, GivesTheWeightsOfDataParallelism) {
  expect_trained(training("plain", 2, "none", 6));
  for (const char* shard : {"optimizer", "gradients", "parameters"}) {
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
  expect_trained(training("thin", 4, "parameters", 2));
  expect_trained(training("thin", 3, "parameters", 4));
  expect_trained(training("thin", 8, "parameters", 5));
  expect_trained(training("plain8", 4, "none", 2));
  expect_trained(training("plain8", 3, "none", 4));
  expect_trained(training("plain8", 8, "none", 5));
  EXPECT_EQ(losses(folder_ / "thin"), losses(folder_ / "plain8"));
  expect_trained(training("thin", 1, "none", 6));
  expect_trained(training("plain8", 1, "none", 6));
  EXPECT_EQ(final_weights(folder_ / "thin"), final_weights(folder_ / "plain8"));
  EXPECT_EQ(losses(folder_ / "cut"), losses(folder_ / "plain"));
  EXPECT_EQ(final_weights(folder_ / "cut"), final_weights(folder_ / "plain"));
}

// Every kind of layer, tables and norms, what is computed again in backward, low precision and evaluation
// with unequal numbers of batches: the sums are the same, so the bits are.
TEST_F(ShardOption, ParametersMayBeOfAnyNetwork) {
  write_words();
  const std::vector<std::string> resnet = {"--model=resnet18",
                                           "--dataset=synthetic:3x8x8,4,34",
                                           "--lr=0.001",
                                           "--optimizer=sgd",
                                           "--global-batch-size=6",
                                           "--recompute",
                                           "--eval-every=1",
                                           "--log-every=1"};
  std::vector<std::string> low = resnet;
  low.insert(low.end(), {"--precision", "bf16"});
  const std::vector<std::vector<std::string>> all = {
      resnet,
      low,
      {"--model=transformer", "--dataset=text:words.txt,context=16", "--data-dir=" + folder_.path().string(),
       "--global-batch-size=6"},
      // In evaluation the first worker has five batches, the others have four.
      {"--precision=fp16", "--dataset=synthetic:1x28x28,10,97", "--global-batch-size=24", "--eval-every=1",
       "--log-every=1"}};
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::string plain = "plain" + std::to_string(i), thin = "thin" + std::to_string(i);
    const int steps = i == 0 || i == 3 ? 7 : 3;
    expect_trained(training(plain, 3, "none", steps, all[i]));
    expect_trained(training(thin, 3, "parameters", steps, all[i]));
    EXPECT_EQ(losses(folder_ / thin), losses(folder_ / plain)) << i;
  }
  for (const char* one : {"0", "3"})
    EXPECT_EQ(last_accuracy(folder_ / (std::string("thin") + one)),
              last_accuracy(folder_ / (std::string("plain") + one)));
  expect_trained(training("plain0", 1, "none", 8, resnet));
  expect_trained(training("thin0", 1, "none", 8, resnet));  // whose checkpoint is one file
  EXPECT_EQ(final_weights(folder_ / "thin0"), final_weights(folder_ / "plain0"));
}

// The processes may not have more memory than the network needs with Adam, each of its four workers.
TEST_F(ShardOption, ParametersMayBeMoreThanAWorkerCanHold) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "skipped: sanitizers reserve more addresses than the limit";
#endif
  write_words();
  const auto limited = [&](const std::string& name, const std::vector<std::string>& more) {
    TrainingRun training = run_named(
        name, 4,
        {"--model=transformer", "--dataset=text:words.txt,context=8", "--data-dir=" + folder_.path().string(),
         "--global-batch-size=8", "--eval-every=0", "--optimizer=adamw", "--threads=1", "--max-steps=2"},
        more);
    std::vector<std::string> all = {"bash", "-c",
                                    "ulimit -v $((1024 * DTRAIN_TEST_MIB)); exec \"$0\" \"$@\""};
    const std::vector<std::string> own = command(training);
    all.insert(all.end(), own.begin(), own.end());
    training.options.environment["DTRAIN_TEST_MIB"] = std::to_string(kLimitMib);
    training.options.environment["MALLOC_ARENA_MAX"] = "1";  // each reserves addresses
    return run(all, training.options);
  };
  const std::vector<std::string> large = {"--width", "512", "--layers", "8", "--heads", "8"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = large;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  EXPECT_EQ(limited("small", {"--width", "64"}).exit_code, 0);
  const RunResult whole = limited("whole", large);
  EXPECT_NE(whole.exit_code, 0);
  EXPECT_THAT(whole.err, HasSubstr("cannot allocate"));
  const RunResult thin = limited("thin", with({"--shard", "parameters"}));
  EXPECT_EQ(thin.exit_code, 0) << thin.err;
}

// Two groups of two workers: the sums are formed in another order.
TEST_F(ShardOption, GroupsMayHoldCopies) {
  expect_trained(training("plain", 4, "none", 8));
  const auto plain = losses(folder_ / "plain");
  for (const char* shard : {"optimizer", "gradients", "parameters"}) {
    const std::string name = std::string("groups-") + shard;
    expect_trained(training(name, 4, shard, 4, {"--shard-group", "2", "--check-replicas", "1"}));
    expect_near(name, plain);
  }
  expect_trained(training("groups-parameters", 2, "gradients", 6, {"--shard-group", "node"}));
  expect_trained(training("groups-parameters", 4, "none", 8));
  expect_near("groups-parameters", plain);
  expect_run_refused(training("three", 4, "parameters", 2, {"--shard-group", "3"}),
                     "expected a divisor of the 4 workers, got 3");
  expect_run_refused(training("alone", 4, "none", 2, {"--shard-group", "2"}), "--shard with it");
  expect_run_refused(training("towers", 2, "parameters", 2, {"--devices", "cpu:0,cpu:1"}), "--devices");
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

// Groups of workers with a sharded optimizer each, and workers on their own; resumed within a round of outer
// steps, which each checkpoint ends.
TEST_F(ShardOption, GroupsMayTakeAnOuterStepNowAndThen) {
  const auto rounds = [](std::vector<std::string> more) {
    more.insert(more.end(), {"--sync-every", "4", "--outer-lr", "0.7", "--checkpoint-every", "6"});
    return more;
  };
  const struct {
    const char *name, *shard;
    std::vector<std::string> options;
  } forms[] = {{"alone", "none", rounds({})}, {"groups", "optimizer", rounds({"--shard-group", "2"})}};
  for (const auto& [name, shard, options] : forms) {
    expect_trained(training(name, 4, shard, 12, options));
    const std::string again = std::string(name) + "-again";
    expect_trained(training(again, 4, shard, 6, options));
    expect_trained(training(again, 4, shard, 12, options));
    EXPECT_EQ(losses(folder_ / again), losses(folder_ / name)) << name;
    EXPECT_LT(losses(folder_ / name).back(), losses(folder_ / name).front()) << name;
  }
  const RunResult other = train(training("groups", 4, "optimizer", 14,
                                         {"--sync-every", "4", "--outer-lr", "0.5", "--shard-group", "2"}));
  EXPECT_NE(other.exit_code, 0);
  EXPECT_THAT(other.err, HasSubstr("--outer-lr"));
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
