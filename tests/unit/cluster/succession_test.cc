// Who may lead when the leader is lost: majorities, votes, and what a successor makes of what it inherits.
// That a majority must follow and must have heard, the leader by its own session, unit_rendezvous_simulation
// sees at once (seeds 28, 106 and 1).
#include "cluster/quorum/voters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/cluster/membership_job.h"

namespace dtrain::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr TimePoint kFounded{seconds(100)};
constexpr Duration kLease = seconds(4);
constexpr std::uint64_t kTerm = 3;
constexpr std::uint64_t kTold = 9;

std::vector<Voter> eligible(std::initializer_list<std::uint64_t> instance_ids) {
  std::vector<Voter> all;
  for (const std::uint64_t one : instance_ids) all.push_back({one, "host" + std::to_string(one), {"h", 1}});
  return all;
}

Ack ack(TimePoint followed, std::uint64_t events, std::uint64_t term = kTerm) {
  return {term, followed.time_since_epoch().count(), events};
}

// The leader's own session has heard all that was told.
void hear_itself(Voters& voters) {
  voters.hear(voters.members().front().instance_id, ack(kFounded, kTold), kTold);
}

TEST(Voters, LeadsAsLongAsAMajorityFollows) {
  Voters voters(kTerm, eligible({1, 2, 3, 4, 5}), kLease, kFounded, 1);
  EXPECT_EQ(voters.leads_until(), kFounded + kLease);
  voters.hear(2, ack(kFounded + seconds(3), 1), kTold);
  EXPECT_EQ(voters.leads_until(), kFounded + kLease) << "with the leader two of five";
  voters.hear(5, ack(kFounded + seconds(2), 1), kTold);
  EXPECT_EQ(voters.leads_until(), kFounded + seconds(2) + kLease);
  voters.hear(5, ack(kFounded + seconds(1), 1), kTold);
  EXPECT_EQ(voters.leads_until(), kFounded + seconds(2) + kLease) << "time does not run backwards";
  voters.hear(77, ack(kFounded + seconds(9), 1), kTold);
  EXPECT_EQ(voters.leads_until(), kFounded + seconds(2) + kLease) << "no voter";
}

// What a follower has heard of the leader before, by that one's clock and numbers, is nothing to this one.
TEST(Voters, CountsNoEchoOfAnotherTermNorOfMoreThanWasTold) {
  Voters voters(kTerm, eligible({2, 1, 3}), kLease);
  voters.hear(3, ack(kFounded + seconds(99), 7, kTerm - 1), kTold);
  EXPECT_FALSE(voters.decided(1));
  EXPECT_LT(voters.leads_until(), kFounded);
  voters.hear(3, ack(kFounded, 8), 7);
  EXPECT_FALSE(voters.decided(1));
  EXPECT_LT(voters.leads_until(), kFounded);
  voters.hear(3, ack(kFounded, 7), 7);
  voters.hear(2, ack(kFounded, 7), 7);
  EXPECT_TRUE(voters.decided(7));
  EXPECT_EQ(voters.leads_until(), kFounded + kLease);
}

// Events that came before the one that tells of it, as of launchers that were waited for, say nothing of it.
TEST(Voters, AFoundersIsHeardOfWithTheNewsThatTellOfIt) {
  Voters voters(kTerm, eligible({1, 2, 3}), kLease, kFounded, 4);
  hear_itself(voters);
  voters.hear(2, ack(kFounded, 3), kTold);
  EXPECT_FALSE(voters.adapt(eligible({2}), 5, kFounded));
  voters.hear(2, ack(kFounded, 4), kTold);
  EXPECT_TRUE(voters.adapt(eligible({2}), 5, kFounded));
}

TEST(Voters, ChangesOneByOneAndOnlyWhenTheLastChangeIsDecided) {
  Voters voters(kTerm, eligible({1, 2, 3, 4, 5}), kLease, kFounded, 1);
  hear_itself(voters);
  const auto present = eligible({2, 3, 6});
  EXPECT_FALSE(voters.adapt(present, 5, kFounded)) << "nobody has heard of the voters yet";
  voters.hear(2, ack(kFounded, 1), kTold);
  voters.hear(3, ack(kFounded, 1), kTold);
  EXPECT_TRUE(voters.adapt(present, 5, kFounded));
  EXPECT_EQ(voters.members().size(), 4U);
  EXPECT_FALSE(voters.adapt(present, 6, kFounded)) << "the last change has not been heard of";
  voters.hear(2, ack(kFounded, 5), kTold);
  voters.hear(3, ack(kFounded, 5), kTold);
  EXPECT_TRUE(voters.adapt(present, 6, kFounded));
  voters.hear(2, ack(kFounded, 6), kTold);
  EXPECT_TRUE(voters.adapt(present, 7, kFounded)) << "of three two have heard";
  std::vector<std::uint64_t> left;
  for (const Voter& one : voters.members()) left.push_back(one.instance_id);
  EXPECT_THAT(left, ElementsAre(1, 2, 3, 6));
}

// A successor, or a leader's next process, has heard of a bare majority at first.
TEST(Voters, TakesNobodyInWithWhomTheLeaderWouldLoseItsMajority) {
  Voters voters(kTerm, eligible({1, 2, 3}), kLease);
  hear_itself(voters);
  voters.hear(2, ack(kFounded, 1), kTold);
  ASSERT_EQ(voters.leads_until(), kFounded + kLease);
  EXPECT_FALSE(voters.adapt(eligible({2, 3, 4}), 2, kFounded)) << "of four, two more must follow";
  EXPECT_EQ(voters.leads_until(), kFounded + kLease);
  voters.hear(3, ack(kFounded, 1), kTold);
  EXPECT_FALSE(voters.adapt(eligible({2, 3, 4}), 2, kFounded + kLease)) << "not any more";
  EXPECT_TRUE(voters.adapt(eligible({2, 3, 4}), 2, kFounded));
  EXPECT_EQ(voters.leads_until(), kFounded + kLease);
}

TEST(Voters, OfTwoTheLeaderIsTheMajorityOnceTheOtherKnows) {
  Voters voters(kTerm, eligible({1, 2, 3}), kLease, kFounded, 1);
  hear_itself(voters);
  voters.hear(2, ack(kFounded, 1), kTold);
  ASSERT_TRUE(voters.adapt(eligible({2}), 2, kFounded));
  EXPECT_LT(voters.leads_until(), TimePoint::max()) << "the lost one and the other could still elect";
  voters.hear(2, ack(kFounded, 1), kTold);
  EXPECT_LT(voters.leads_until(), TimePoint::max()) << "nobody has heard of the change yet";
  voters.hear(2, ack(kFounded, 2), kTold);
  EXPECT_EQ(voters.leads_until(), TimePoint::max());
  EXPECT_FALSE(voters.has_successors());
  // A third one ends that before it has heard of it.
  ASSERT_TRUE(voters.adapt(eligible({2, 4}), 3, kFounded));
  EXPECT_LT(voters.leads_until(), TimePoint::max());
}

// --- what a successor does -------------------------------------------------------------------------------

NodeOffer back(int place, int round, bool at_work) {
  NodeOffer offer = offer_of(place);
  offer.instance_id = 100 + static_cast<std::uint64_t>(place);
  offer.resumes = true;
  offer.term = 1;
  offer.place = place;
  offer.round = round;
  offer.at_work = at_work;
  return offer;
}

class Successor : public testing::Test {
 protected:
  // Round 3 ran on places 0, 4 and 2; place 0 led.
  Successor() { succeed(seconds(4)); }
  // The leader before was last heard so long ago.
  void succeed(Duration heard_ago) {
    rules_ = fixed(3, 9);
    rules_.spares = 2;
    Inheritance left;
    left.known.round = 3;
    left.known.restart_count = 2;
    left.known.launch_time_ns = 77;
    left.known.nodes = {{0, "gpu0", 2, 0}, {1, "gpu4", 2, 2}, {2, "gpu2", 2, 4}};
    left.known.displaced = {{4, 1}};
    left.heard = now_;
    left.lost = "gpu0 is lost";
    left.host_place = 2;
    now_ += heard_ago;
    job_.emplace(rules_, left, now_);
  }
  void pass(Duration time, std::initializer_list<ConnectionId> beating) {
    for (const TimePoint end = now_ + time; now_ < end;) {
      now_ += milliseconds(50);
      for (const ConnectionId id : beating) job_->beat(id, now_);
      job_->tick(now_);
    }
  }
  template <class Kind>
  std::vector<Kind> heard() {
    for (LeaderEvent& event : job_->take_events()) events_.push_back(std::move(event));
    std::vector<Kind> found;
    for (const LeaderEvent& event : events_) {
      if (const Kind* one = std::get_if<Kind>(&event)) found.push_back(*one);
    }
    return found;
  }

  TimePoint now_{seconds(1000)};
  JobRules rules_;
  std::optional<Membership> job_;
  std::vector<LeaderEvent> events_;
};

TEST_F(Successor, EndsTheRoundAndFormsTheNextWhenNobodyOfTheOldOneCanBeAtWork) {
  ASSERT_EQ(heard<Stop>().size(), 1U);
  EXPECT_EQ(heard<Stop>()[0].round, 3);
  EXPECT_TRUE(heard<Stop>()[0].again);
  EXPECT_EQ(job_->join(1, back(2, 3, true), now_).refused, "");
  EXPECT_EQ(job_->join(2, back(4, 3, false), now_).node_rank, 4);
  EXPECT_EQ(job_->join(3, back(3, -1, false), now_).refused, "") << "a spare";
  job_->hear(1, Ended{3, 143}, now_);
  EXPECT_TRUE(heard<Forming>().empty()) << "the leader before may still have workers";
  pass(seconds(1), {1, 2, 3});
  EXPECT_TRUE(heard<Forming>().empty());
  pass(seconds(2), {1, 2, 3});
  ASSERT_EQ(heard<Forming>().size(), 1U);
  const Forming next = heard<Forming>()[0];
  EXPECT_EQ(next.round, 4);
  EXPECT_EQ(next.restart_count, 3);
  EXPECT_EQ(next.nodes[0].host, "gpu3");
  EXPECT_EQ(next.nodes[1].host, "gpu4");
  for (const ConnectionId id : {1, 2, 3}) job_->hear(id, Ready{4, 1234, "10.0.0.3"}, now_);
  ASSERT_EQ(heard<Start>().size(), 1U);
  EXPECT_EQ(heard<Start>()[0].launch_time_ns, 77);
  EXPECT_EQ(heard<Start>()[0].master_addr, "10.0.0.3");
}

TEST_F(Successor, TakesTheLeaderBeforeBackAsANodeIfItComesInTime) {
  job_->join(1, back(2, 3, false), now_);
  job_->join(2, back(4, 3, false), now_);
  EXPECT_EQ(job_->join(5, back(0, 3, false), now_).refused, "");
  ASSERT_EQ(heard<Forming>().size(), 1U);
  EXPECT_EQ(heard<Forming>()[0].nodes[0].host, "gpu0");
}

// When a leader was long in being found, the first to speak to it may be another one.
TEST_F(Successor, WaitsForItsOwnLauncherWhenAllLeasesHaveRunOut) {
  succeed(seconds(10));
  job_->tick(now_);
  EXPECT_FALSE(job_->over());
  EXPECT_EQ(job_->join(1, back(2, 3, false), now_).node_rank, 2);
  pass(seconds(2), {1});
  EXPECT_FALSE(job_->over());
  EXPECT_FALSE(job_->abdicated());
}

TEST_F(Successor, AbdicatesWhereItsOwnLauncherDoesNotCome) {
  succeed(seconds(10));
  pass(seconds(2), {});
  EXPECT_FALSE(job_->over());
  EXPECT_TRUE(job_->abdicated());
}

TEST_F(Successor, RefusesWhoComesAfterTheEnd) {
  job_->join(1, back(2, 3, false), now_);
  job_->hear(1, Signalled{15}, now_);
  pass(seconds(5), {1});
  ASSERT_TRUE(job_->over());
  EXPECT_THAT(job_->join(2, back(4, 3, false), now_).refused, HasSubstr("the job is over"));
}

TEST_F(Successor, RefusesWhoIsAtWorkInARoundThatItDoesNotKnow) {
  EXPECT_THAT(job_->join(1, back(2, 2, true), now_).refused, HasSubstr("continued without"));
}

TEST_F(Successor, WaitsForReplacementsWhereThereIsNoSpare) {
  job_->join(1, back(2, 3, false), now_);
  job_->join(2, back(4, 3, false), now_);
  pass(seconds(3), {1, 2});
  EXPECT_TRUE(heard<Forming>().empty());
  EXPECT_FALSE(job_->over());
  EXPECT_EQ(job_->join(9, offer_of(0), now_).refused, "");
  EXPECT_EQ(heard<Forming>().size(), 1U);
}

// Its rounds have the same numbers: that it took part in one of them says nothing here.
TEST_F(Successor, TakesALauncherOfAnotherJobForANewcomer) {
  NodeOffer stranger = back(4, 3, false);
  stranger.job = 78;
  const Admission admission = job_->join(2, stranger, now_);
  EXPECT_EQ(admission.refused, "");
  EXPECT_FALSE(admission.as_before);
  EXPECT_FALSE(job_->join(2, stranger, now_).as_before) << "asked again";
  EXPECT_TRUE(job_->join(3, back(2, 3, true), now_).as_before);
  stranger = back(0, 3, true);
  stranger.job = 78;
  EXPECT_THAT(job_->join(5, stranger, now_).refused, HasSubstr("continued without")) << "it has workers";
}

// It leads a job in which the launcher that was started at its place before took part.
TEST_F(Successor, IsNotSucceededWhenAFormerLauncherOfItsPlaceIsLost) {
  job_->set_successors(true);
  EXPECT_EQ(job_->join(1, back(2, -1, false), now_).refused, "");
  pass(seconds(5), {1});
  EXPECT_FALSE(job_->abdicated());
  job_->leave(1, Departure::closed, now_);
  EXPECT_TRUE(job_->abdicated());
}

TEST_F(Successor, IsSucceededWhenItsOwnLauncherEnds) {
  job_->join(1, back(2, 3, false), now_);
  job_->set_successors(true);
  job_->hear(1, Gone{}, now_);
  EXPECT_TRUE(job_->abdicated());
  EXPECT_FALSE(job_->over());
}

}  // namespace
}  // namespace dtrain::rendezvous
