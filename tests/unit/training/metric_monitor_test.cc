// What follows from a run's evaluations: when the rate falls (beside ReduceLROnPlateau of PyTorch), when the
// run ends, what is the best; and that a restart in between changes nothing.
#include "training/loop/metric_monitor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <span>

#include "runtime/base/error.h"
#include "runtime/checkpoint/checkpoint_files.h"
#include "tests/support/golden.h"
#include "tests/support/message_of.h"

namespace dtrain {
namespace {

using testing::HasSubstr;

TrainConfig config(const std::vector<std::string>& arguments) {
  return make_train_config(resolve_options("dtrain train", train_options(), arguments, {}), "lenet", 1);
}

Evaluation loss(double value) { return {.loss = value, .metrics = {{"accuracy", 1 - value}}}; }

/// Takes the values one after the other, each by a monitor that was saved and loaded again.
std::vector<MetricMonitor> after_each(const TrainConfig& config, const std::vector<double>& losses) {
  std::vector<MetricMonitor> all;
  std::map<std::string, double> state;
  for (std::size_t i = 0; i < losses.size(); ++i) {
    all.emplace_back(config);
    all.back().load(state);
    all.back().take(loss(losses[i]), static_cast<std::int64_t>(i + 1) * 10);
    state = all.back().state();
  }
  return all;
}

TEST(MetricMonitor, FindsThePlateausThatPyTorchFinds) {
  const test::Golden golden(DTRAIN_GOLDEN_SCHEDULES);
  const auto losses = golden["losses"].get<std::vector<double>>(),
             bases = golden["bases"].get<std::vector<double>>();
  const auto monitors = after_each(config({"--lr-schedule=plateau", "--lr-patience=2"}), losses);
  const auto rates = golden["cases"]["plateau"].get<std::vector<double>>();  // a row a base
  ASSERT_EQ(rates.size(), bases.size() * losses.size());
  EXPECT_GE(monitors.back().plateaus(), 5);
  for (std::size_t group = 0; group < bases.size(); ++group) {
    const std::span<const double> expected = std::span(rates).subspan(group * losses.size(), losses.size());
    LrSchedule schedule{.kind = LrKind::plateau, .base_lr = bases[group], .gamma = 0.4, .min_lr = 0.0005};
    EXPECT_EQ(schedule.at(0), expected[0]);
    for (std::size_t i = 0; i + 1 < expected.size(); ++i) {
      schedule.plateaus = monitors[i].plateaus();
      EXPECT_EQ(schedule.at(0), expected[i + 1]) << i;
    }
  }
}

TEST(MetricMonitor, EndsTheRunAfterSoManyEvaluationsWithoutABetterOne) {
  const auto monitors = after_each(config({"--early-stopping=2"}), {3, 2, 2, 1.9, 1.95, 1.9});
  for (std::size_t i = 0; i < 5; ++i) EXPECT_FALSE(monitors[i].why_stop()) << i;
  ASSERT_TRUE(monitors[5].why_stop());
  EXPECT_THAT(*monitors[5].why_stop(),
              HasSubstr("loss has not been better than 1.9, after step 40, in 2 evaluations"));
}

TEST(MetricMonitor, KeepsTheBestByTheMetricAskedFor) {
  const auto by_loss = after_each(config({"--keep-best"}), {3, 2, 2.5, 1});
  EXPECT_TRUE(by_loss[1].keeps_last());
  EXPECT_FALSE(by_loss[2].keeps_last());
  EXPECT_EQ(by_loss[2].state().at(kBestStep), 20);
  EXPECT_EQ(by_loss[3].state().at(kBestStep), 40);
  const auto by_accuracy = after_each(config({"--keep-best", "--monitor=accuracy"}), {0.3, 0.2, 0.25});
  EXPECT_EQ(by_accuracy[2].state().at(kBestStep), 20) << "the highest accuracy";
  EXPECT_TRUE(after_each(config({}), {3, 2}).back().state().empty());
}

TEST(MetricMonitor, StartsAnewForAnotherMetricAndRefusesAnUnknownOne) {
  const auto before = after_each(config({"--early-stopping=2"}), {3, 3, 3}).back().state();
  MetricMonitor other(config({"--early-stopping=2", "--monitor=accuracy"}));
  other.load(before);
  EXPECT_FALSE(other.why_stop());
  MetricMonitor unknown(config({"--early-stopping=2", "--monitor=recall"}));
  EXPECT_THAT(
      test::message_of([&] { unknown.take(loss(1), 10); }),
      HasSubstr("--monitor: expected one of loss, accuracy, which this run's evaluations have, got recall"));
}

TEST(MetricMonitor, OfAnErrorLessIsBetter) {
  for (const char* name : {"loss", "val_loss", "word_error", "perplexity", "mse", "rmse", "test_mae"})
    EXPECT_TRUE(less_is_better(name)) << name;
  for (const char* name : {"accuracy", "f1", "bleu", "r2", "auc"}) EXPECT_FALSE(less_is_better(name)) << name;
}

}  // namespace
}  // namespace dtrain
