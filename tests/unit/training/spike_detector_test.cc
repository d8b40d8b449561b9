#include "training/log/spike_detector.h"

#include <gtest/gtest.h>

#include <cmath>

namespace dtrain {
namespace {

using Samples = std::vector<std::int64_t>;

TEST(SpikeDetector, ASpikeStandsOutFromTheMedianOfTheStepsBefore) {
  SpikeDetector watch(3);
  for (std::size_t i = 0; i < SpikeDetector::kLeast; ++i)
    EXPECT_FALSE(watch.judge(i % 2 == 0 ? 1.0 : 1.5)) << i;
  EXPECT_FALSE(watch.judge(4.4)) << "not three times 1.5";
  EXPECT_EQ(watch.judge(4.6), 1.5);
  EXPECT_FALSE(watch.judge(std::nan(""))) << "the engine's business";
}

TEST(SpikeDetector, TheFirstLossesAreNoSpikes) {
  SpikeDetector watch(2);
  for (std::size_t i = 0; i + 1 < SpikeDetector::kLeast; ++i) watch.judge(1.0);
  EXPECT_FALSE(watch.judge(100.0));
  EXPECT_TRUE(watch.judge(100.0));
  watch.forget();
  EXPECT_FALSE(watch.judge(1000.0));
}

TEST(SpikeDetector, ALossThatFallsSlowlyHasNone) {
  SpikeDetector watch(1.5);
  for (int i = 0; i < 500; ++i) EXPECT_FALSE(watch.judge(2.3 * std::exp(-0.01 * i))) << i;
}

TEST(SpikeDetector, KnowsWhatTheLastStepsTook) {
  SpikeDetector watch(0);
  for (std::int64_t step = 1; step <= 20; ++step) {
    watch.take(step, Samples{2 * step});
    watch.take(step, Samples{2 * step + 1});  // the second pass
    EXPECT_FALSE(watch.judge(std::pow(10.0, static_cast<double>(step)))) << "nothing was asked for";
  }
  EXPECT_EQ(watch.samples_of(20), (Samples{40, 41}));
  EXPECT_EQ(watch.samples_of(18), (Samples{36, 37}));
  EXPECT_EQ(watch.samples_of(1), Samples{});
}

}  // namespace
}  // namespace dtrain
