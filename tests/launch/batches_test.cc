// What an epoch's last batch may be: a norm that has no statistics of it is named before the first step, and
// --drop-last leaves it out.
#include "tests/launch/option_test.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dtrain::test {
namespace {

using testing::HasSubstr;

/// ResNet-50 makes a single pixel of images as small as these.
class LastBatch : public testing::Test {
 protected:
  TrainingRun training(int world, int samples, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"--model",
                                          "resnet50",
                                          "--dataset",
                                          "synthetic:3x32x32,4," + std::to_string(samples),
                                          "--global-batch-size",
                                          "4",
                                          "--epochs",
                                          "1",
                                          "--eval-every",
                                          "0",
                                          "--log-every",
                                          "1",
                                          "--lr",
                                          "0.001",
                                          "--checkpoint-every",
                                          "0"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return {.world = world,
            .launcher_arguments = {},
            .arguments = arguments,
            .run_dir = folder_ / "run",
            .options = limited_to(std::chrono::seconds(120))};
  }

  TempDir folder_;
};

TEST_F(LastBatch, OfOneSampleIsRefusedBeforeTheFirstStep) {
  for (const auto& [world, samples] : {std::pair(1, 9), std::pair(2, 10)}) {
    const TrainingRun run = training(world, samples);
    const RunResult result = train(run);
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_THAT(result.err, HasSubstr("more than one value per channel"));
    EXPECT_THAT(result.err, HasSubstr("--drop-last"));
    EXPECT_FALSE(std::filesystem::exists(run.run_dir)) << "nothing was begun";
  }
}

TEST_F(LastBatch, IsLeftOut) {
  const TrainingRun run = training(1, 9, {"--drop-last"});
  const RunResult result = train(run);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(losses(run.run_dir).size(), 2U);
}

}  // namespace
}  // namespace dtrain::test
