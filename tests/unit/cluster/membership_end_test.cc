// How rounds end: one cause, leases, restarts, signals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

TEST(Membership, AFailureStopsEverybodyOnceAndIsTheCause) {
  Job job = running(fixed(2));
  job.say(1, worker_failed(0, 7));
  EXPECT_EQ(job.count<Stop>(), 0U);
  job.pass(milliseconds(60));
  ASSERT_EQ(job.count<Stop>(), 1U);
  const Stop stop = job.last<Stop>();
  EXPECT_FALSE(stop.again);
  EXPECT_FALSE(stop.checkpoint_first);
  EXPECT_EQ(stop.failure->exit_code, 7);
  EXPECT_EQ(stop.failure->node_rank, 1);
  EXPECT_EQ(stop.failure->host, "gpu1");
  job.ended_all({0, 1}, 0, 143);
  EXPECT_EQ(job.last<Over>().exit_code, 7);
  EXPECT_EQ(job.last<Over>().failure->lines, stop.failure->lines);
  EXPECT_EQ(job.count<Stop>(), 1U);
}

TEST(Membership, TheEarliestFailureWinsWhereverItIsReportedFirst) {
  Job job = running(fixed(3));
  job.say(0, worker_failed(0, 1, milliseconds(1)));
  job.pass(milliseconds(20));
  job.say(2, worker_failed(0, 139, milliseconds(40)));
  job.pass(milliseconds(20));
  job.say(1, worker_failed(0, 3, milliseconds(0)));
  job.pass(milliseconds(30));
  EXPECT_EQ(job.last<Stop>().failure->exit_code, 139);
  EXPECT_EQ(job.count<Stop>(), 1U);
}

TEST(Membership, AConsequenceWaitsForItsCauseButNotForLong) {
  Job job = running(fixed(2));
  job.say(0, worker_failed(0, 4, milliseconds(5), true));
  job.pass(milliseconds(200));
  EXPECT_EQ(job.count<Stop>(), 0U);
  job.say(1, worker_failed(0, 137));
  job.pass(milliseconds(60));
  EXPECT_EQ(job.last<Stop>().failure->exit_code, 137);

  Job alone = running(fixed(2));
  alone.say(0, worker_failed(0, 4, {}, true));
  alone.pass(milliseconds(600));
  EXPECT_EQ(alone.last<Stop>().failure->exit_code, 4);
}

TEST(Membership, ACauseFoundWhileStoppingReplacesAConsequence) {
  Job job = running(fixed(2));
  job.mute(1);  // cut off
  job.say(0, worker_failed(0, 4, {}, true));
  job.pass(milliseconds(600));
  EXPECT_EQ(job.count<Stop>(), 1U);
  job.say(0, Ended{0, 4});
  job.pass(seconds(7));
  ASSERT_TRUE(job.over());
  EXPECT_EQ(job.last<Over>().failure->kind, Failure::Kind::node_lost);
  EXPECT_EQ(job.last<Over>().failure->node_rank, 1);
  EXPECT_THAT(job.lost(), testing::ElementsAre(1U));
}

TEST(Membership, ANodeThatEndsWithoutSayingThatItFailedFails) {
  Job job = running(fixed(2));
  job.say(1, Ended{0, 9});
  job.pass(milliseconds(60));
  EXPECT_EQ(job.last<Stop>().failure->exit_code, 9);
  job.say(0, Ended{0, 143});
  EXPECT_EQ(job.last<Over>().exit_code, 9);
}

TEST(Membership, AFailureWhoseNodesAllEndWithinTheSettlingTime) {
  Job job = running(fixed(2, 1));
  job.say(0, Ended{0, 0});
  job.say(1, worker_failed(0, 5));
  job.say(1, Ended{0, 5});
  EXPECT_TRUE(job.last<Stop>().again);
  EXPECT_EQ(job.last<Forming>().round, 1);
}

TEST(Membership, RestartsAreCountedForTheJob) {
  Job job = running(fixed(2, 1));
  job.say(1, worker_failed(0, 7));
  job.pass(milliseconds(60));
  EXPECT_TRUE(job.last<Stop>().again);
  job.ended_all({0, 1}, 0, 143);
  EXPECT_EQ(job.last<Forming>().round, 1);
  job.ready_all({0, 1}, 0);  // stale
  EXPECT_EQ(job.count<Start>(), 1U);
  job.ready_all({0, 1}, 1);
  EXPECT_EQ(job.last<Start>().round, 1);
  EXPECT_EQ(job.last<Start>().restart_count, 1);
  job.say(0, worker_failed(0, 6));  // stale
  job.pass(milliseconds(100));
  EXPECT_EQ(job.count<Stop>(), 1U);
  job.say(0, worker_failed(1, 8));
  job.pass(milliseconds(60));
  EXPECT_FALSE(job.last<Stop>().again);
  job.ended_all({0, 1}, 1, 143);
  EXPECT_EQ(job.last<Over>().exit_code, 8);
}

TEST(Membership, AKilledLauncherEndsAFixedJobWithoutRestartsAtOnce) {
  Job job = running(fixed(3));
  job.leave(2, Departure::closed);
  job.say(1, worker_failed(0, 1, milliseconds(20)));  // a peer without words of its own
  job.pass(milliseconds(60));
  const Stop stop = job.last<Stop>();
  EXPECT_EQ(stop.failure->kind, Failure::Kind::launcher_lost);
  EXPECT_EQ(stop.failure->host, "gpu2");
  EXPECT_FALSE(stop.again);
  job.ended_all({0, 1}, 0, 143);
  EXPECT_EQ(job.last<Over>().exit_code, 4);
}

TEST(Membership, ABrokenConnectionIsDecidedByItsLease) {
  Job job = running(fixed(2));
  job.leave(1, Departure::broken);
  job.pass(milliseconds(5900));
  EXPECT_EQ(job.count<Stop>(), 0U);
  job.pass(milliseconds(500));
  EXPECT_EQ(job.last<Stop>().failure->kind, Failure::Kind::node_lost);
  EXPECT_THAT(job.last<Stop>().failure->lines, Contains(HasSubstr("node_rank 1 (host gpu1")));
}

TEST(Membership, ANodeThatDoesNotEndItsWorkersIsLeftBehindWhenItsLeaseHasRunOut) {
  JobRules rules = fixed(2);
  rules.stop_within = seconds(30);
  Job job = running(rules);
  job.say(0, worker_failed(0, 7));
  job.say(0, Ended{0, 7});
  job.pass(seconds(29));  // the other beats on, but its launcher stands still
  EXPECT_THAT(job.lost(), IsEmpty());
  job.pass(seconds(2));
  EXPECT_THAT(job.lost(), testing::ElementsAre(1U)) << "its connection is to be closed";
  EXPECT_FALSE(job.over()) << "it may be at work until its lease has run out";
  job.pass(seconds(6));
  EXPECT_TRUE(job.over());
  EXPECT_EQ(job.last<Over>().exit_code, 7) << "the cause stays the cause";
}

TEST(Membership, ANodeThatDoesNotGetReadyIsLeftBehind) {
  JobRules rules = elastic(1, 2);
  rules.form_within = seconds(60);
  Job job(rules);
  job.join_all(2);
  job.say(0, Ready{0, 4711});
  job.pass(seconds(59));
  EXPECT_EQ(job.count<Forming>(), 1U);
  job.pass(seconds(2));
  EXPECT_EQ(job.count<Forming>(), 2U) << "the others continue without it";
  EXPECT_EQ(job.last<Forming>().nodes.size(), 1U);
  EXPECT_THAT(job.lost(), testing::ElementsAre(1U));
}

TEST(Membership, ANodeThatFellSilentIsGivenTheMarginOfItsLease) {
  Job job = running(fixed(2));
  job.leave(1, Departure::silent);
  job.pass(milliseconds(1900));
  EXPECT_EQ(job.count<Stop>(), 0U);
  job.pass(milliseconds(500));
  EXPECT_THAT(job.last<Stop>().failure->lines, Contains(HasSubstr("cut in one direction")));
}

// A launcher whose connection broke, seen from the leader.
NodeOffer known(int node_rank, bool resumes = false) {
  NodeOffer offer = offer_of(node_rank);
  offer.instance_id = 100 + static_cast<std::uint64_t>(node_rank);
  offer.resumes = resumes;
  return offer;
}

Job running_with_known(JobRules rules) {
  Job job(std::move(rules));
  for (const int i : {0, 1}) EXPECT_EQ(job.join(static_cast<ConnectionId>(i), known(i)).refused, "");
  job.ready_all({0, 1}, 0);
  return job;
}

TEST(Membership, ALauncherThatComesBackInTimeHasItsSlotAgain) {
  Job job = running_with_known(fixed(2, 1));
  job.leave(1, Departure::broken);
  job.pass(seconds(5));
  EXPECT_EQ(job.join(31, known(1, true)).refused, "");
  job.pass(seconds(20));
  EXPECT_EQ(job.count<Stop>(), 0U) << "nothing has happened";
  job.say(31, Ended{0, 0});
  job.say(0, Ended{0, 0});
  EXPECT_EQ(job.last<Over>().exit_code, 0);
}

TEST(Membership, ALauncherThatComesBackBeforeItsConnectionIsKnownToBeDeadReplacesIt) {
  Job job = running_with_known(fixed(2, 1));
  job.mute(1);
  job.pass(seconds(5));
  EXPECT_EQ(job.join(31, known(1, true)).refused, "");
  EXPECT_THAT(job.lost(), testing::ElementsAre(1U)) << "the old connection is closed";
  job.leave(1, Departure::broken);
  job.pass(seconds(20));
  EXPECT_EQ(job.count<Stop>(), 0U);
}

TEST(Membership, ALauncherThatComesBackTooLateIsRefused) {
  Job job = running_with_known(fixed(2, 1));
  job.leave(1, Departure::broken);
  job.pass(seconds(7));
  EXPECT_EQ(job.count<Stop>(), 1U);
  EXPECT_THAT(job.join(31, known(1, true)).refused, HasSubstr("lease has expired"));
  EXPECT_THAT(job.join(32, known(7, true)).refused, HasSubstr("lease has expired")) << "never was here";
}

// A leader that was killed, and is started again before those who followed it know: they are another job's.
TEST(Membership, BeforeAnyRoundNobodyIsToldThatTheJobHasGoneOn) {
  Job job(fixed(3, 1));
  job.join(0);
  const Admission admission = job.join(31, known(1, true));
  EXPECT_EQ(admission.refused, "");
  EXPECT_TRUE(admission.elsewhere);
  job.pass(seconds(1));
  EXPECT_EQ(job.count<Forming>(), 0U) << "it has no slot here";
}

TEST(Membership, AWordThatIsSaidAgainIsHeardOnce) {
  Job job = running_with_known(fixed(2, 1));
  job.say(1, Signalled{15}, 1);
  job.leave(1, Departure::broken);
  job.join(31, known(1, true));
  job.say(31, Signalled{15}, 1);
  EXPECT_FALSE(job.last<Stop>().at_once) << "it was not the second signal";
  job.say(31, Signalled{15}, 2);
  EXPECT_TRUE(job.last<Stop>().at_once);
}

TEST(Membership, ALauncherThatComesBackWhileOthersAreMissingCountsAgain) {
  Job job(fixed(2));
  job.join(0, known(0));
  job.leave(0, Departure::broken);
  job.join(30, known(0, true));
  job.join(1, known(1));
  EXPECT_EQ(job.count<Forming>(), 1U);
}

TEST(Membership, ASilentNodeIsLostNotBefore6Seconds) {
  Job job = running(fixed(2));
  job.mute(1);
  job.pass(milliseconds(5800));
  EXPECT_THAT(job.lost(), IsEmpty());
  job.pass(milliseconds(700));
  EXPECT_THAT(job.lost(), testing::ElementsAre(1U));
  EXPECT_EQ(job.last<Stop>().failure->kind, Failure::Kind::node_lost);
  job.say(1, Ended{0, 0});  // too late, ignored
  job.say(0, Ended{0, 137});
  EXPECT_EQ(job.last<Over>().failure->node_rank, 1);
}

TEST(Membership, ALeaderThatWasHeldUpReadsTheHeartbeatsFirst) {
  Job job = running(fixed(2));
  job.freeze(seconds(20));
  EXPECT_THAT(job.lost(), IsEmpty());
  job.pass(seconds(10));
  EXPECT_THAT(job.lost(), IsEmpty());
  EXPECT_EQ(job.count<Stop>(), 0U);
}

TEST(Membership, LeavingAfterOnesEndIsNoLoss) {
  Job job = running(fixed(2));
  job.say(1, Ended{0, 0});
  job.leave(1, Departure::closed);
  job.say(0, Ended{0, 0});
  EXPECT_EQ(job.last<Over>().exit_code, 0);
}

TEST(Membership, ALauncherKilledBeforeTheStartEndsAFixedJob) {
  Job job(fixed(3));
  job.join(0);
  job.join(1);
  job.leave(1, Departure::closed);
  EXPECT_EQ(job.last<Over>().failure->kind, Failure::Kind::launcher_lost);

  Job forming(fixed(2));
  forming.join_all(2);
  forming.leave(1, Departure::broken);
  EXPECT_FALSE(forming.over()) << "it may come back";
  forming.pass(seconds(7));
  EXPECT_EQ(forming.last<Over>().failure->kind, Failure::Kind::node_lost);
}

TEST(Membership, ANodeThatCannotStartItsPartEndsTheJob) {
  Job job(fixed(2, 3));
  job.join_all(2);
  Failed failed = worker_failed(0, 127);
  failed.failure.kind = Failure::Kind::unusable;
  job.say(1, failed);
  EXPECT_EQ(job.last<Over>().exit_code, 127);

  Job late = running(fixed(2, 3));
  late.say(1, failed);
  late.pass(milliseconds(60));
  EXPECT_FALSE(late.last<Stop>().again);
}

TEST(Membership, AllWorkersThatAskToBeRequeuedEndTheJobWith75) {
  Job job = running(fixed(2, 3));
  Failed asked = worker_failed(0, 75);
  asked.failure.kind = Failure::Kind::requeue;
  job.say(0, asked);
  job.say(0, Ended{0, 75});
  job.pass(seconds(5));
  EXPECT_EQ(job.count<Stop>(), 0U);  // the others write their checkpoint
  job.say(1, Ended{0, 75});
  EXPECT_EQ(job.last<Over>().exit_code, 75);
  EXPECT_EQ(job.last<Over>().failure->kind, Failure::Kind::requeue);

  Job alone = running(fixed(2, 3));
  alone.say(0, Ended{0, 75});
  alone.pass(seconds(11));
  EXPECT_FALSE(alone.last<Stop>().again);
  alone.say(1, Ended{0, 143});
  EXPECT_EQ(alone.last<Over>().exit_code, 75);
}

TEST(Membership, ASignalGoesToEveryNodeAndTheSecondEndsAtOnce) {
  Job job = running(fixed(2, 3));
  job.say(1, Signalled{15});
  ASSERT_EQ(job.count<Stop>(), 1U);
  EXPECT_EQ(job.last<Stop>().signal, 15);
  EXPECT_FALSE(job.last<Stop>().at_once);
  EXPECT_FALSE(job.last<Stop>().again);
  job.say(0, Signalled{15});  // the batch system signals every launcher
  EXPECT_EQ(job.count<Stop>(), 1U);
  job.say(0, worker_failed(0, 143));
  job.pass(seconds(1));
  EXPECT_EQ(job.count<Stop>(), 1U);
  job.say(1, Signalled{15});
  ASSERT_EQ(job.count<Stop>(), 2U);
  EXPECT_TRUE(job.last<Stop>().at_once);
  job.ended_all({0, 1}, 0, 137);
  EXPECT_EQ(job.last<Over>().exit_code, 143);
  EXPECT_EQ(job.last<Over>().failure->kind, Failure::Kind::signal);
}

TEST(Membership, ASignalledJobThatWroteItsCheckpointAsksToBeRequeued) {
  Job job = running(fixed(2));
  job.say(0, Signalled{12});
  job.ended_all({0, 1}, 0, 75);
  EXPECT_EQ(job.last<Over>().exit_code, 75);
  EXPECT_EQ(job.last<Over>().failure->exit_code, 75);

  Job orderly = running(fixed(2));
  orderly.say(0, Signalled{15});
  orderly.ended_all({0, 1}, 0, 0);
  EXPECT_EQ(orderly.last<Over>().exit_code, 0);
}

TEST(Membership, ASignalBeforeTheStartEndsTheWaiting) {
  Job job(fixed(3));
  job.join(0);
  job.say(0, Signalled{2});
  EXPECT_EQ(job.last<Over>().exit_code, 130);
}

TEST(Membership, ASignalWhileAFailureIsBeingClearedUpPreventsTheRestart) {
  Job job = running(fixed(2, 3));
  job.say(1, worker_failed(0, 7));
  job.pass(milliseconds(60));
  EXPECT_TRUE(job.last<Stop>().again);
  job.say(0, Signalled{15});
  EXPECT_FALSE(job.last<Stop>().again);
  job.ended_all({0, 1}, 0, 143);
  EXPECT_EQ(job.last<Over>().exit_code, 7);
}

// --- a machine that closes a node's connection -------------------------------------------------------------

TEST(HungUp, ANodeIsNotWaitedForAsLongAsItsLeaseWhereNobodyGoesOn) {
  Job job = running(fixed(3));
  job.leave(1, Departure::hung_up);
  job.pass(milliseconds(1900));
  EXPECT_EQ(job.count<Stop>(), 0U) << "its link may be started again";
  job.pass(milliseconds(600));
  ASSERT_EQ(job.count<Stop>(), 1U);
  EXPECT_THAT(job.last<Stop>().failure->lines.front(), HasSubstr("closed the connection"));
  job.ended_all({0, 2}, 0, 143);
  EXPECT_EQ(job.last<Over>().exit_code, 4);
}

TEST(HungUp, ANodeIsFencedWhereOthersGoOn) {
  Job job = running(fixed(3, 1));
  job.leave(1, Departure::hung_up);
  job.pass(milliseconds(5500));
  EXPECT_EQ(job.count<Stop>(), 0U) << "its workers may work until the lease has run out";
  job.pass(seconds(1));
  EXPECT_EQ(job.count<Stop>(), 1U);
}

TEST(HungUp, ANodeThatComesBackIsLostByItsLeaseAlone) {
  Job job = running_with_known(fixed(2));
  job.leave(1, Departure::hung_up);
  job.pass(seconds(1));
  EXPECT_EQ(job.join(11, known(1, true)).refused, "");
  job.pass(seconds(30));
  EXPECT_EQ(job.count<Stop>(), 0U);
}

}  // namespace
}  // namespace dtrain::rendezvous
