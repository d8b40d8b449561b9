// When restarts bring a job no further, on one node and as the leader of several sees it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/rendezvous/messages.h"
#include "tests/unit/cluster/membership_job.h"

namespace dtrain::rendezvous {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(RestartProgress, StallsAfterSoManyRestartsInARow) {
  RestartProgress progress(3);
  progress.failed_at(400);  // the first start
  progress.failed_at(412);
  for (const int step : {412, 405}) {
    progress.failed_at(step);
    EXPECT_FALSE(progress.stalled());
  }
  progress.failed_at(412);
  EXPECT_TRUE(progress.stalled());
  EXPECT_EQ(progress.text(), "no progress over 3 restarts: none came further than step 412");
}

TEST(RestartProgress, AStepFurtherBeginsTheCountAnew) {
  RestartProgress progress(2);
  for (const int step : {5, 5, 6, 6, 7, 7, 8}) progress.failed_at(step);
  EXPECT_FALSE(progress.stalled());
  EXPECT_EQ(progress.stalled_restarts(), 0);
}

TEST(RestartProgress, AStartThatFinishesNoStepCountsAndAProgramThatSaysNothingDoesNot) {
  RestartProgress progress(1), silent(1), never(0);
  for (int start = 0; start < 5; ++start) {
    progress.failed_at(0);
    silent.failed_at(-1);
    never.failed_at(3);
  }
  EXPECT_TRUE(progress.stalled());
  EXPECT_THAT(progress.text(), HasSubstr("none finished a step"));
  EXPECT_FALSE(silent.stalled());
  EXPECT_FALSE(never.stalled());
}

// Two nodes; each start fails when they have come to these steps.
void fail_at(Job& job, int round, std::int64_t first, std::int64_t second) {
  job.ready_all({0, 1}, round);
  ASSERT_EQ(job.last<Start>().round, round);
  job.say(1, worker_failed(round, 7));
  job.pass(std::chrono::milliseconds(60));
  job.say(0, Ended{round, 143, first});
  job.say(1, Ended{round, 7, second});
}

JobRules two(int stalled) {
  JobRules rules = fixed(2, 100);
  rules.max_stalled_restarts = stalled;
  return rules;
}

TEST(RestartProgress, TheLeaderEndsAJobThatComesNoFurther) {
  Job job(two(2));
  job.join_all(2);
  fail_at(job, 0, 10, 11);
  fail_at(job, 1, 11, 11);
  ASSERT_FALSE(job.over());
  fail_at(job, 2, 3, 4);
  ASSERT_TRUE(job.over());
  EXPECT_EQ(job.last<Over>().exit_code, 7);
  EXPECT_THAT(
      job.last<Over>().failure->lines,
      ElementsAre("no progress over 2 restarts: none came further than step 11; the job ends with the cause "
                  "above"));
}

TEST(RestartProgress, LostNodesDoNotCount) {
  Job job(two(1));
  job.join_all(2);
  fail_at(job, 0, 10, 10);
  job.ready_all({0, 1}, 1);
  job.leave(1, Departure::closed);
  job.pass(std::chrono::milliseconds(60));
  job.say(0, Ended{1, 143, 4});
  EXPECT_FALSE(job.over());
  EXPECT_EQ(job.join(1).refused, "");
  EXPECT_EQ(job.last<Forming>().round, 2);
}

TEST(RestartProgress, ASuccessorCountsOn) {
  Job job(two(2));
  job.join_all(2);
  fail_at(job, 0, 10, 10);
  fail_at(job, 1, 10, 10);
  Inheritance inheritance{job.snapshot(), TimePoint{std::chrono::seconds(1000)}, "the leader is lost", 1};
  EXPECT_EQ(inheritance.known.best_step, 10);
  EXPECT_EQ(inheritance.known.stalled_restarts, 1);
  const auto bytes = decode_leader_event(encode(LeaderEvent(inheritance.known)));
  ASSERT_TRUE(bytes);
  const Membership successor(two(2), {std::get<Snapshot>(*bytes), inheritance.heard, "", 1},
                             inheritance.heard);
  EXPECT_EQ(successor.snapshot().best_step, 10);
  EXPECT_EQ(successor.snapshot().stalled_restarts, 1);
}

}  // namespace
}  // namespace dtrain::rendezvous
