// --virtual-workers through the programs: the same bits for any number of workers, also when it changes in
// the middle of an epoch, and what does not go together with it.
#include "tests/launch/option_test.h"

namespace dtrain::test {
namespace {

using testing::HasSubstr;

class VirtualWorkersOption : public OptionTest {
 protected:
  /// 100 samples in steps of 48: the last step of an epoch is a short one, filled up to a multiple of 8.
  TrainingRun training(const std::string& name, int world, int steps,
                       const std::vector<std::string>& more = {}) {
    return run_named(
        name, world,
        {"--model=lenet", "--dataset=synthetic:1x28x28,10,100", "--global-batch-size=48", "--eval-every=0",
         "--optimizer=adamw", "--lr=0.002", "--virtual-workers=8", "--max-steps=" + std::to_string(steps)},
        more);
  }
  void expect_refused(const std::vector<std::string>& more, const std::string& words, int world = 1) {
    expect_run_refused(training("refused", world, 1, more), words);
  }
};

TEST_F(VirtualWorkersOption, AnyNumberOfWorkersGivesTheSameWeights) {
  expect_trained(training("one", 1, 5));
  for (const int world : {2, 3, 4}) {
    const std::string name = std::to_string(world);
    expect_trained(training(name, world, 5));
    EXPECT_EQ(final_weights(folder_ / name), final_weights(folder_ / "one")) << world << " workers";
  }
}

TEST_F(VirtualWorkersOption, AlsoWhenItChangesInMidEpoch) {
  expect_trained(training("one", 1, 5, {"--loader-threads", "1"}));
  for (const auto& [world, steps] : {std::pair{5, 1}, {2, 2}, {8, 4}, {1, 5}})
    expect_trained(training("changing", world, steps));
  EXPECT_EQ(final_weights(folder_ / "changing"), final_weights(folder_ / "one"));

  const RunResult other = train(training("changing", 2, 7, {"--virtual-workers", "4"}));
  EXPECT_NE(other.exit_code, 0);
  EXPECT_THAT(other.err, HasSubstr("--virtual-workers: the checkpoint"));
}

TEST_F(VirtualWorkersOption, SaysWhatItDoesNotGoWith) {
  expect_refused({"--virtual-workers", "2"}, "expected at least one part for each of 3 workers, got 2", 3);
  expect_refused({"--global-batch-size", "50"}, "expected a multiple of 8 (--virtual-workers), got 50");
  expect_refused({"--accumulate", "2"}, "--accumulate");
  expect_refused({"--shard", "optimizer"}, "--shard");
  expect_refused({"--compress", "bf16"}, "--compress");
  expect_refused({"--sync-batch-norm"}, "--sync-batch-norm");
}

}  // namespace
}  // namespace dtrain::test
