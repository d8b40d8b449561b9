// From options to a recipe: batches, learning rates, defaults, and refusals that name the option.
#include "training/recipe.h"

#include <gtest/gtest.h>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

Recipe recipe(const std::vector<std::string>& arguments, std::int64_t world = 1) {
  return make_recipe(resolve_options("dtrain train", train_options(), arguments, {}), "lenet", world);
}

TEST(Recipe, GlobalBatchIsSharedOverWorkersAndPasses) {
  const BatchPlan batch = recipe({"--global-batch-size=96", "--accumulate=2"}, 3).batch;
  EXPECT_EQ(batch.per_worker, 16);
  EXPECT_EQ(batch.global, 96);
  EXPECT_EQ(recipe({"--batch-size=16", "--accumulate=2"}, 3).batch.global, 96);
  EXPECT_EQ(recipe({}, 2).batch.global, 256);
  EXPECT_EQ(recipe({"--global-batch-size=97"}, 3).batch.per_worker, 33);  // 33, 32 and 32
  EXPECT_EQ(recipe({"--global-batch-size=97"}, 3).batch.global, 97);
  EXPECT_THROW(recipe({"--global-batch-size=97", "--accumulate=2"}, 3), UsageError);
  EXPECT_THROW(recipe({"--global-batch-size=2"}, 3), UsageError);
  EXPECT_THROW(recipe({"--global-batch-size=96", "--batch-size=32"}), UsageError);
}

TEST(Recipe, LearningRateScalesWithTheBatch) {
  EXPECT_DOUBLE_EQ(recipe({"--lr=0.1", "--global-batch-size=1024", "--scale-lr=linear"}).lr, 0.4);
  EXPECT_DOUBLE_EQ(recipe({"--lr=0.1", "--global-batch-size=1024", "--scale-lr=sqrt"}).lr, 0.2);
  EXPECT_DOUBLE_EQ(
      recipe({"--lr=0.1", "--batch-size=256", "--scale-lr=linear", "--base-batch-size=512"}, 4).lr, 0.2);
}

TEST(Recipe, DefaultsDependOnTheOptimizer) {
  EXPECT_EQ(recipe({}).sgd.weight_decay, 0);
  EXPECT_EQ(recipe({"--optimizer=adamw"}).adamw.weight_decay, 1e-2);
  EXPECT_EQ(recipe({"--optimizer=adamw"}).lr, 1e-3);
  EXPECT_EQ(recipe({"--optimizer=adamw", "--betas=0.8,0.95"}).adamw.beta2, 0.95);
}

TEST(Recipe, LengthIsEpochsUnlessOnlyStepsAreGiven) {
  EXPECT_EQ(recipe({}).epochs, 10);
  EXPECT_EQ(make_schedule(recipe({"--max-steps=40"}), 235).total_steps, 40);
  EXPECT_EQ(make_schedule(recipe({"--max-steps=40", "--epochs=2"}), 235).total_steps, 470);
}

TEST(Recipe, RefusesWhatCannotBe) {
  for (const char* bad :
       {"--betas=0.9", "--betas=0.9,1", "--nesterov", "--lr-schedule=step", "--lr=-1", "--precision=fp8",
        "--epochs=-1", "--accumulate=0", "--collective-timeout=0", "--optimizer=adam", "--trace-steps=1:2"}) {
    EXPECT_THROW(recipe({bad}), UsageError) << bad;
  }
}

TEST(Recipe, TraceNamesAFileAndMayNameSteps) {
  EXPECT_FALSE(recipe({}).trace);
  EXPECT_FALSE(recipe({"--trace=auto"}).trace->first_step);
  const auto trace = recipe({"--trace=t.json", "--trace-steps=100:105"}).trace;
  EXPECT_EQ(trace->file, "t.json");
  EXPECT_EQ(trace->first_step, 100);
  EXPECT_EQ(trace->last_step, 105);
  for (const char* bad : {"5", "0:3", "4:3", ":", "a:b", "1:2:3", ""}) {
    EXPECT_THROW(recipe({"--trace=auto", std::string("--trace-steps=") + bad}), UsageError) << bad;
  }
}

}  // namespace
}  // namespace dtrain
