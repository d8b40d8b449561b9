// Options of parallelism in whole runs, where neither resumed.txt nor refused_options.txt looks: what a
// worker can hold, what a run keeps, and evaluation of what was learned in slices.
#include "tests/launch/option_test.h"

namespace dtrain::test {
namespace {

using testing::HasSubstr;

class ParallelOptions : public OptionTest {
 protected:
  void SetUp() override { write_file(folder_ / "book.txt", learnable_text()); }

  /// LeNet for `steps` steps.
  TrainingRun training(const std::string& name, int world, int steps, const std::vector<std::string>& more) {
    return run_named(name, world,
                     {"--model=lenet", "--dataset=synthetic:1x28x28,10,512", "--global-batch-size=48",
                      "--eval-every=0", "--log-every=1", "--max-steps=" + std::to_string(steps)},
                     more);
  }

  /// 25 million elements take 400 MB with Adam, a quarter of them 100.
  static constexpr int kLimitMib = 450;
};

// The processes may not have more memory than the network needs with Adam, each of its four workers.
TEST_F(ParallelOptions, ParametersMayBeMoreThanAWorkerCanHold) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "skipped: sanitizers reserve more addresses than the limit";
#endif
  const auto limited = [&](const std::string& name, const std::vector<std::string>& more) {
    TrainingRun training = run_named(
        name, 4,
        {"--model=transformer", "--dataset=text:book.txt,context=8", "--data-dir=" + folder_.path().string(),
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

TEST_F(ParallelOptions, AreKeptByARun) {
  const struct {
    std::vector<std::string> first, other;
    const char* words;
  } rows[] = {{{"--sync-every=4", "--outer-lr=0.7"}, {"--sync-every=4", "--outer-lr=0.5"}, "--outer-lr"},
              {{"--virtual-workers=8"}, {"--virtual-workers=4"}, "--virtual-workers: the checkpoint"}};
  for (const auto& [first, other, words] : rows) {
    expect_trained(training(words, 2, 4, first));
    const RunResult refused = train(training(words, 2, 6, other));
    EXPECT_NE(refused.exit_code, 0);
    EXPECT_THAT(refused.err, HasSubstr(words));
  }
}

TEST_F(ParallelOptions, LayersMayHaveRatesOfTheirOwn) {
  for (const auto& [name, rate] : {std::pair("lars", "1"), {"lamb", "0.01"}}) {
    expect_trained(training(name, 2, 12, {"--optimizer", name, "--lr", rate}));
    EXPECT_LT(losses(folder_ / name).back(), losses(folder_ / name).front()) << name;
  }
}

TEST_F(ParallelOptions, WhatIsLearnedInSlicesIsEvaluatedWhole) {
  expect_trained(run_named("cut", 2,
                           {"--model=transformer", "--dataset=text:book.txt,context=16",
                            "--data-dir=" + folder_.path().string(), "--width=32", "--global-batch-size=16",
                            "--log-every=1", "--optimizer=adamw", "--lr=0.003", "--max-steps=16"},
                           {"--tensor", "2"}));
  const auto cut = losses(folder_ / "cut");
  EXPECT_LT(cut.back(), 0.8 * cut.front());
  const RunResult result = run({program("dtrain"), "eval", "--checkpoint", (folder_ / "cut").string(),
                                "--data-dir", folder_.path().string()},
                               limited_to(std::chrono::seconds(60)));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("test perplexity"));
}

}  // namespace
}  // namespace dtrain::test
