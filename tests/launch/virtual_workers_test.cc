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

// Parts of the network elsewhere, the optimizer's state partitioned, both, neither: one run.
TEST_F(VirtualWorkersOption, AlsoWithPartsOnDevicesAndTheOptimizerSharedOut) {
  const std::vector<std::string> place = {"--place", "conv1=cpu:0,fc1=cpu:1"},
                                 shard = {"--shard", "optimizer"};
  std::vector<std::string> both = place;
  both.insert(both.end(), shard.begin(), shard.end());
  const std::vector<std::string> limit = {"--clip-grad-norm", "0.5", "--weight-decay-on", "matrices"};
  const auto train_to = [&](const std::string& name, int world, int steps, std::vector<std::string> more) {
    more.insert(more.end(), limit.begin(), limit.end());
    expect_trained(training(name, world, steps, more));
  };
  train_to("one", 1, 6, {});
  train_to("placed", 1, 6, place);
  EXPECT_EQ(final_weights(folder_ / "placed"), final_weights(folder_ / "one"));
  train_to("changing", 3, 1, place);
  train_to("changing", 2, 2, shard);
  train_to("changing", 1, 3, place);
  train_to("changing", 4, 4, both);
  train_to("changing", 3, 5, shard);
  train_to("changing", 2, 6, {});
  EXPECT_EQ(final_weights(folder_ / "changing"), final_weights(folder_ / "one"));
}

TEST_F(VirtualWorkersOption, SaysWhatItDoesNotGoWith) {
  expect_refused({"--virtual-workers", "2"}, "expected at least one part for each of 3 workers, got 2", 3);
  expect_refused({"--global-batch-size", "50"}, "expected a multiple of 8 (--virtual-workers), got 50");
  expect_refused({"--accumulate", "2"}, "--accumulate");
  for (const char* what : {"gradients", "parameters"})
    expect_refused({"--shard", what}, "expected optimizer or none with --virtual-workers");
  expect_refused({"--shard", "optimizer", "--shard-group", "1"}, "expected job with");
  expect_refused({"--compress", "bf16"}, "none with --virtual-workers: what it loses");
  expect_refused({"--sync-batch-norm"}, "whose parts have statistics of their own");
  expect_refused({"--sync-every", "2"}, "with --sync-every, which averages the weights of workers");
  expect_refused({"--devices", "cpu:0,cpu:1"}, "for several at a time use --thread-workers");
}

}  // namespace
}  // namespace dtrain::test
