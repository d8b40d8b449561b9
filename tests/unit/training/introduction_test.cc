// What a run says of itself at its beginning and its end.
#include "training/log/introduction.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace dtrain {
namespace {

TEST(Counts, AreGroupedByThousands) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1000), "1,000");
  EXPECT_EQ(format_count(123'456'789), "123,456,789");
  EXPECT_EQ(format_count(-1234), "-1,234");
  EXPECT_EQ(format_count(-123), "-123");
  EXPECT_EQ(format_count(INT64_MAX), "9,223,372,036,854,775,807");
}

RunIntroduction lenet() {
  return {.model = "lenet",
          .parameters = 61'706,
          .trained = 61'706,
          .data = "fashion-mnist",
          .train_samples = 60'000,
          .test_samples = 10'000,
          .workers = 2,
          .device = "cpu",
          .backend = "tcp",
          .steps_per_epoch = 235,
          .global_batch = 256,
          .optimizer = "sgd",
          .lr = 0.2,
          .folder = "runs/mine"};
}

TEST(RunIntroduction, SaysWhatIsTrainedOnWhatByWhomAndWhere) {
  EXPECT_EQ(text_of(lenet()),
            "lenet: 61,706 parameters\n"
            "fashion-mnist: 60,000 samples to train on, 10,000 to test on\n"
            "2 workers on cpu, backend tcp\n"
            "235 steps of 256 samples in an epoch; sgd, learning rate 0.2\n"
            "files: runs/mine");
}

TEST(RunIntroduction, SaysWhenTheOptimizerIsTheProgramsOwn) {
  RunIntroduction run = lenet();
  run.optimizer.clear();
  EXPECT_EQ(format_seconds(0.9254), "0.93 s");
  EXPECT_EQ(format_seconds(9.996), "10.0 s");
  EXPECT_EQ(format_seconds(59.96), "1 min 00 s");
  EXPECT_EQ(format_seconds(1234), "20 min 34 s");
  EXPECT_NE(text_of(run).find("in an epoch; the program's own optimizer\nfiles: "), std::string::npos);
}

TEST(RunIntroduction, SaysWhatIsFrozenAndLeavesOutWhatOneWorkerHasNot) {
  RunIntroduction run = lenet();
  run.trained = 850;
  run.workers = 1;
  const std::string text = text_of(run);
  EXPECT_NE(text.find("lenet: 61,706 parameters, 850 of them trained\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\n1 worker on cpu\n235"), std::string::npos) << text;
}

TEST(BestEvaluation, IsTheFirstOfTheBest) {
  BestEvaluation accuracies, losses;
  EXPECT_EQ(accuracies.text(), "");
  for (const double value : {0.5, 0.9, 0.9, 0.7}) {
    static std::int64_t epoch = 0;
    Evaluation evaluation;
    evaluation.loss = value;
    losses.add(evaluation, epoch);
    evaluation.metrics = {{"accuracy", value}};
    accuracies.add(evaluation, epoch++);
  }
  EXPECT_EQ(accuracies.text(), "best test accuracy 0.9000 (epoch 2)");
  EXPECT_EQ(losses.text(), "best test loss 0.5000 (epoch 1)");
}

}  // namespace
}  // namespace dtrain
