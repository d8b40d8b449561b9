#include "training/log/straggler_score.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dtrain {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// Four ranks that wait for a batch for 2 ms and compute for 8 in a step of 12, compared every second.
class StragglerScoreTest : public testing::Test {
 protected:
  /// What `time` of such steps changes: "2 data", "2 -".
  std::vector<std::string> run(seconds time) {
    std::vector<std::string> changes;
    for (int i = 0; i < time.count(); ++i) {
      for (const StragglerChange& change : score_.add(seconds(1), ranks_)) {
        last_ = change;
        changes.push_back(std::to_string(change.rank) + " " + std::string(name_of(change.slowness.phase)));
      }
    }
    return changes;
  }
  static constexpr StepSeconds kUsual{.data = 0.002, .compute = 0.008, .step = 0.012};

  StragglerScore score_;
  std::vector<StepSeconds> ranks_ = std::vector<StepSeconds>(4, kUsual);
  StragglerChange last_;
};

TEST_F(StragglerScoreTest, ARankThatIsSlowForTwoMinutesIsNamedOnceAndAgainWhenItRecovers) {
  EXPECT_THAT(run(seconds(600)), IsEmpty());
  ranks_[2].compute = 0.012;
  EXPECT_THAT(run(seconds(55)), IsEmpty()) << "less than half of the window";
  EXPECT_THAT(run(seconds(20)), ElementsAre("2 compute"));
  EXPECT_NEAR(last_.slowness.factor, 1.4, 1e-9);
  EXPECT_NEAR(last_.others.compute, 0.008, 1e-9);
  EXPECT_THAT(run(seconds(600)), IsEmpty()) << "it is known";
  EXPECT_NEAR(last_.seconds.step, 0.012, 1e-9);
  ranks_[2] = kUsual;
  EXPECT_THAT(run(seconds(55)), IsEmpty());
  EXPECT_THAT(run(seconds(20)), ElementsAre("2 none"));
  EXPECT_EQ(last_.slowness, Slowness());
  EXPECT_THAT(run(seconds(600)), IsEmpty());
}

TEST_F(StragglerScoreTest, AtTheStartTheWindowIsFilledFirst) {
  ranks_[0].data = 0.02;
  EXPECT_THAT(run(seconds(119)), IsEmpty());
  EXPECT_THAT(run(seconds(2)), ElementsAre("0 data"));
  EXPECT_NEAR(last_.slowness.factor, 2.8, 1e-9);
}

TEST_F(StragglerScoreTest, OneThatIsHeldUpForHalfAMinuteIsNone) {
  run(seconds(300));
  ranks_[1].compute = 10;
  EXPECT_THAT(run(seconds(30)), IsEmpty());
  ranks_[1] = kUsual;
  EXPECT_THAT(run(seconds(300)), IsEmpty());
}

TEST_F(StragglerScoreTest, NeitherIsOneThatIsALittleSlower) {
  ranks_[3].compute = 0.0105;  // 1.25
  EXPECT_THAT(run(seconds(600)), IsEmpty());
  // Once named it stays so: somebody at the limit is not named every few minutes.
  ranks_[3].compute = 0.0115;
  EXPECT_THAT(run(seconds(150)), ElementsAre("3 compute"));
  ranks_[3].compute = 0.0105;
  EXPECT_THAT(run(seconds(600)), IsEmpty());
  ranks_[3].compute = 0.009;
  EXPECT_THAT(run(seconds(150)), ElementsAre("3 none"));
}

TEST_F(StragglerScoreTest, WhatCostsAStepNothingIsNoWordWorth) {
  for (StepSeconds& rank : ranks_) rank = {.data = 0.001, .compute = 0.004, .step = 0.2};
  ranks_[0].compute = 0.008;
  EXPECT_THAT(run(seconds(600)), IsEmpty());
  for (StepSeconds& rank : ranks_) rank.step = 0.02;
  EXPECT_THAT(run(seconds(150)), ElementsAre("0 compute"));
}

TEST_F(StragglerScoreTest, SeveralAreEachComparedWithTheOthersMedian) {
  ranks_.resize(8, kUsual);
  for (const std::size_t rank : {1, 4, 6}) ranks_[rank].data = 0.01;
  EXPECT_THAT(run(seconds(150)), ElementsAre("1 data", "4 data", "6 data"));
}

TEST_F(StragglerScoreTest, OfTwoRanksEachIsComparedWithTheOther) {
  ranks_.resize(2);
  ranks_[1].compute = 0.016;
  EXPECT_THAT(run(seconds(150)), ElementsAre("1 compute"));
  EXPECT_NEAR(last_.slowness.factor, 1.8, 1e-9);
}

TEST_F(StragglerScoreTest, StagesAreNotComparedWithEachOther) {
  score_ = StragglerScore({0, 0, 1, 1, 2});
  ranks_.resize(5, kUsual);
  ranks_[2].compute = ranks_[3].compute = 0.02;
  ranks_[4].compute = 0.04;
  EXPECT_THAT(run(seconds(600)), IsEmpty());
  ranks_[3].compute = 0.04;
  EXPECT_THAT(run(seconds(150)), ElementsAre("3 compute"));
}

// However long a step takes, and where an interruption was longer than the window, a comparison is not
// enough.
TEST_F(StragglerScoreTest, OneComparisonIsNotEnough) {
  ranks_[2].compute = 0.05;
  EXPECT_THAT(score_.add(seconds(900), ranks_), IsEmpty());
  EXPECT_EQ(score_.add(seconds(900), ranks_).size(), 1U);
}

}  // namespace
}  // namespace dtrain
