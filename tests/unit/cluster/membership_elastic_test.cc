// Jobs whose number of nodes changes, and words that come at the wrong time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/fuzz/targets.h"
#include "tests/unit/cluster/membership_job.h"

namespace dtrain::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// A job of three whose last launcher was killed; the others have started again.
Job gone_on_without_node_2(const JobRules& rules) {
  Job job = running(rules);
  job.leave(2, Departure::closed);
  job.pass(milliseconds(60));
  job.ended_all({0, 1}, 0, 143);
  job.ready_all({0, 1}, 1);
  return job;
}

TEST(Membership, AnElasticJobStartsWithFewerAfterTheLastCall) {
  JobRules rules = elastic(2, 4);
  rules.last_call = seconds(12);
  Job job(rules);
  job.join(0);
  job.pass(seconds(100));
  job.join(3);
  job.pass(seconds(11));
  EXPECT_EQ(job.count<Forming>(), 0U);
  EXPECT_THAT(job.waiting_text(),
              AllOf(HasSubstr("2/2 to 4 nodes; missing node_rank 1, 2"), HasSubstr("enough")));
  job.pass(seconds(2));
  ASSERT_EQ(job.count<Forming>(), 1U);
  EXPECT_EQ(job.last<Forming>().nodes[1].node_rank, 3);
  EXPECT_EQ(job.last<Forming>().nodes[1].first_rank, 2);

  Job full(elastic(2, 3));
  full.join_all(3);
  EXPECT_EQ(full.count<Forming>(), 1U);
}

TEST(Membership, AnElasticJobGoesOnWithoutALostNodeAndTakesItInAgain) {
  Job job = running(elastic(2, 4));
  job.mute(2);
  job.pass(seconds(7));
  EXPECT_TRUE(job.last<Stop>().again);
  EXPECT_EQ(job.last<Stop>().failure->node_rank, 2);
  job.ended_all({0, 1, 3}, 0, 143);
  EXPECT_EQ(job.last<Forming>().nodes.size(), 3U);
  job.ready_all({0, 1, 3}, 1);
  EXPECT_EQ(job.last<Start>().restart_count, 1);

  // It comes back: at the next checkpoint, and that is no restart.
  const Admission back = job.join(22, offer_of(2));
  EXPECT_EQ(back.refused, "");
  EXPECT_THAT(back.lines, Contains(HasSubstr("next checkpoint")));
  const Stop stop = job.last<Stop>();
  EXPECT_TRUE(stop.again && stop.checkpoint_first);
  EXPECT_EQ(stop.round, 1);
  EXPECT_FALSE(stop.failure);
  job.pass(seconds(30));
  job.ended_all({0, 1}, 1, 75);
  EXPECT_EQ(job.last<Forming>().round, 1);
  job.ended_all({3}, 1, 75);
  EXPECT_EQ(job.last<Forming>().round, 2);
  EXPECT_EQ(job.last<Forming>().nodes.size(), 4U);
  job.ready_all({0, 1, 22, 3}, 2);
  EXPECT_EQ(job.last<Start>().restart_count, 1);
  job.ended_all({0, 1, 22, 3}, 2, 0);
  EXPECT_EQ(job.last<Over>().exit_code, 0);
}

TEST(Membership, AnElasticJobEndsBelowItsLeastNumberOfNodes) {
  Job job = running(elastic(2, 3));
  job.leave(1, Departure::closed);
  job.pass(milliseconds(60));
  EXPECT_TRUE(job.last<Stop>().again);
  job.leave(2, Departure::closed);
  job.say(0, Ended{0, 143});
  EXPECT_EQ(job.last<Over>().exit_code, 4);
  EXPECT_EQ(job.last<Over>().failure->node_rank, 1);
}

TEST(Membership, LosingTheFirstNodeEndsAnElasticJobToo) {
  Job job = running(elastic(1, 3));
  job.leave(0, Departure::closed);
  job.pass(milliseconds(60));
  EXPECT_FALSE(job.last<Stop>().again);
}

TEST(Membership, ANodeLostWhileARoundFormsOnlyMeansAnotherRound) {
  Job job(elastic(2, 3));
  job.join_all(3);
  job.leave(1, Departure::closed);
  EXPECT_EQ(job.last<Forming>().round, 1);
  EXPECT_EQ(job.last<Forming>().nodes.size(), 2U);
  job.ready_all({0, 2}, 1);
  EXPECT_EQ(job.last<Start>().restart_count, 0);

  Job few(elastic(2, 3));
  few.join(0);
  few.join(1);
  few.pass(seconds(31));
  EXPECT_EQ(few.count<Forming>(), 1U);
  few.leave(1, Departure::closed);
  EXPECT_FALSE(few.over());
  few.join(2);
  few.pass(seconds(31));
  EXPECT_EQ(few.count<Forming>(), 2U);
}

TEST(Membership, WhoComesWhileARoundFormsIsInTheNext) {
  JobRules rules = elastic(1, 3);
  Job job(rules);
  job.join(0);
  job.pass(seconds(31));
  job.join(1);
  job.ready_all({0}, 0);
  EXPECT_EQ(job.count<Start>(), 0U);
  EXPECT_EQ(job.last<Forming>().nodes.size(), 2U);
  job.ready_all({0, 1}, 1);
  EXPECT_EQ(job.last<Start>().nodes.size(), 2U);
}

TEST(Membership, AFailureWhileANodeIsTakenInStopsTheRoundForReal) {
  Job job = running(elastic(1, 3));
  job.leave(2, Departure::broken);
  job.join(22, offer_of(2));  // back before its old lease has run out
  EXPECT_TRUE(job.last<Stop>().checkpoint_first);
  job.pass(seconds(7));
  EXPECT_EQ(job.count<Stop>(), 2U);
  EXPECT_FALSE(job.last<Stop>().checkpoint_first);
  EXPECT_TRUE(job.last<Stop>().again);
  job.ended_all({0, 1}, 0, 143);
  EXPECT_EQ(job.last<Forming>().nodes.size(), 3U);
  job.ready_all({0, 1, 22}, 1);
  EXPECT_EQ(job.last<Start>().restart_count, 1);
}

TEST(Membership, AJobThatFinishesInsteadOfTakingInIsDone) {
  Job job = gone_on_without_node_2(elastic(1, 3));
  job.join(22, offer_of(2));
  job.ended_all({0, 1}, 1, 0);
  EXPECT_EQ(job.last<Over>().exit_code, 0);
}

TEST(Membership, TooFewLeftAfterACheckpointAskToBeRequeued) {
  Job job = gone_on_without_node_2(elastic(2, 3));
  job.join(22, offer_of(2));
  job.say(1, Ended{1, 75});
  job.leave(1, Departure::closed);
  job.leave(22, Departure::closed);
  job.say(0, Ended{1, 75});
  EXPECT_EQ(job.last<Over>().exit_code, 75);
}

TEST(Membership, ABrokenConnectionSaysNothingMore) {
  Job job = running(fixed(2));
  job.leave(1, Departure::broken);
  job.say(1, Ended{0, 0});
  job.say(0, Ended{0, 0});
  EXPECT_FALSE(job.over());
  job.pass(seconds(7));
  EXPECT_EQ(job.last<Over>().failure->kind, Failure::Kind::node_lost);
}

TEST(Membership, AWaitingNewcomerMayLeave) {
  Job job = gone_on_without_node_2(elastic(1, 3));
  job.join(22, offer_of(2));
  job.say(22, Signalled{2});
  job.leave(22, Departure::closed);
  job.ended_all({0, 1}, 1, 75);
  EXPECT_EQ(job.last<Forming>().nodes.size(), 2U);
}

TEST(Membership, WordsOfStrangersAndOfTheWrongTimeAreIgnored) {
  Job job(fixed(2));
  job.say(5, Ready{0, 1});
  job.join_all(2);
  job.say(0, Ended{0, 0});
  job.say(1, Ended{0, 1});
  job.say(0, Ready{1, 1});
  job.say(0, Ready{-1, 1});
  job.say(1, Failed{3, {}, {}});
  job.pass(seconds(1));
  EXPECT_FALSE(job.over());
  EXPECT_EQ(job.count<Start>(), 0U);
  job.ready_all({0, 1}, 0);
  job.say(0, Ready{0, 9});
  job.ended_all({0, 1}, 0, 0);
  job.say(0, worker_failed(0, 3));
  job.say(1, Signalled{15});
  job.leave(1, Departure::closed);
  job.pass(seconds(20));
  EXPECT_EQ(job.count<Over>(), 1U);
}

// The fuzz target on sequences drawn at random, most of them likely ones.
TEST(Fuzz, MembershipKeepsItsPromisesUnderAnySequence) {
  std::mt19937 random(20240103);
  for (int i = 0; i < 20000; ++i) {
    std::string input(4 + random() % 200, ' ');
    for (char& c : input) c = static_cast<char>(random() % 3 == 0 ? random() : random() % 8);
    fuzz::rendezvous_membership(input);
    fuzz::rendezvous_session(input);
    fuzz::rendezvous_messages(input);
  }
}

}  // namespace
}  // namespace dtrain::rendezvous
