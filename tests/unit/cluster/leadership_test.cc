// One vote a term, and none while a leader is followed. That a vote goes only to one that knows enough, and
// that who has voted for a later term does not lead, unit_rendezvous_simulation sees at once (seeds 36 and
// 103).
#include "cluster/quorum/leadership.h"

#include <gtest/gtest.h>

namespace dtrain::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Launcher 9 of three voters follows the leader of term 1, launcher 7, and has heard one event.
class LeadershipTest : public testing::Test {
 protected:
  LeadershipTest() {
    leadership_.approach({"leader", 1});
    EXPECT_EQ(leadership_.follow(1), Leadership::Followed::anew);
    EXPECT_TRUE(leadership_.granted({5, seconds(4)}, now_ + seconds(4), now_));
    leadership_.hear(1, {{7, "a", {"a", 1}}, {9, "c", {"c", 1}}, {8, "b", {"b", 1}}});
  }
  VoteAnswer asked_by(std::uint64_t instance_id, std::uint64_t term) {
    return leadership_.answer({term, instance_id, 1, 1}, now_);
  }
  // What it asks the others for when it has no leader; they have granted its probe, if it stands.
  VoteRequest asks() {
    const VoteRequest probe = *leadership_.acquire(now_).request;
    EXPECT_TRUE(probe.probe || probe.term == 0);
    if (probe.term == 0) return probe;
    return *leadership_.answered({granted_by(8)}, now_).request;
  }
  static VoteAnswer granted_by(std::uint64_t instance_id) {
    return {true, instance_id, 0, seconds(9), 0, {}};
  }

  TimePoint now_{seconds(100)};
  Leadership leadership_{{9, "c", seconds(4), {}, {}}};
};

TEST_F(LeadershipTest, FollowsALeaderAsLongAsItsLeaseLasts) {
  now_ += seconds(3);
  const VoteAnswer answer = asked_by(8, 2);
  EXPECT_FALSE(answer.granted);
  EXPECT_EQ(answer.leads, 1U);
  EXPECT_EQ(answer.leader.host, "leader");
  EXPECT_EQ(leadership_.acquire(now_).request->term, 0U) << "it only asks who leads";
}

// Where it led itself, cut off from its own server: others had their leases of it until then.
TEST_F(LeadershipTest, SaysSinceWhenItHasGrantedNothing) {
  leadership_.found({{8, "b", {"b", 1}}, {7, "a", {"a", 1}}}, 1, now_ + seconds(3));
  now_ += seconds(5);
  EXPECT_GT(leadership_.renew(now_).lasts, Duration::zero());
  leadership_.resign();
  now_ += seconds(1);
  const VoteAnswer answer = asked_by(8, 2);
  EXPECT_TRUE(answer.granted);
  EXPECT_EQ(answer.heard_ago, seconds(1));
}

TEST_F(LeadershipTest, VotesOnceATermAndSaysSinceWhenItHasHeardNothing) {
  now_ += seconds(5);
  const VoteAnswer answer = asked_by(8, 2);
  EXPECT_TRUE(answer.granted);
  EXPECT_EQ(answer.heard_ago, seconds(5));
  EXPECT_EQ(answer.leads, 0U) << "the former leader is not followed any more";
  now_ += seconds(1);
  EXPECT_FALSE(asked_by(8, 2).granted);
  EXPECT_TRUE(asked_by(8, 3).granted);
  EXPECT_EQ(asks().term, 0U) << "it has just voted";
  now_ += seconds(1);
  EXPECT_EQ(asks().term, 4U);
  now_ += seconds(1);
  EXPECT_FALSE(asked_by(8, 4).granted) << "it has voted for itself";
}

// Of four launchers of which one is lost, all three must be free to vote for the same one.
TEST_F(LeadershipTest, VotesAgainForWhomItHasJustVotedFor) {
  now_ += seconds(5);
  ASSERT_TRUE(asked_by(8, 2).granted);
  now_ += milliseconds(100);
  EXPECT_FALSE(asked_by(7, 3).granted);
  EXPECT_TRUE(asked_by(8, 4).granted);
}

TEST_F(LeadershipTest, AProbeIsAnsweredAsTheVoteWouldBeAndBindsNobody) {
  now_ += seconds(5);
  const VoteRequest probe{7, 8, 1, 1, true};
  EXPECT_TRUE(leadership_.answer(probe, now_).granted);
  EXPECT_TRUE(asked_by(7, 2).granted);
  EXPECT_FALSE(leadership_.answer(probe, now_).granted) << "it has voted for another one since";
  now_ += seconds(1);
  EXPECT_EQ(leadership_.acquire(now_).request->term, 3U);
  EXPECT_NE(leadership_.follow(2), Leadership::Followed::refused);
}

TEST_F(LeadershipTest, FollowsALowerTermThanThatForWhichItStoodInVain) {
  leadership_.hear(1, {{7, "a", {"a", 1}}, {9, "c", {"c", 1}}, {8, "b", {"b", 1}}});
  now_ += seconds(5);
  EXPECT_EQ(asks().term, 2U);
  EXPECT_EQ(leadership_.follow(1), Leadership::Followed::refused);
  EXPECT_FALSE(leadership_.answered({}, now_).elected);
  EXPECT_EQ(leadership_.follow(1), Leadership::Followed::as_before);
  EXPECT_EQ(asks().term, 3U) << "no term is stood for twice";
  const auto elected = leadership_.answered({granted_by(8)}, now_).elected;
  ASSERT_TRUE(elected);
  EXPECT_EQ(elected->term, 3U);
  EXPECT_EQ(elected->heard_ago, seconds(5)) << "the voter has not heard the leader for longer";
  EXPECT_EQ(leadership_.follow(2), Leadership::Followed::refused) << "it leads";
}

TEST_F(LeadershipTest, GivesNoVoteBetweenItsElectionAndItsLead) {
  now_ += seconds(5);
  const std::uint64_t stood = asks().term;
  ASSERT_TRUE(leadership_.answered({granted_by(8)}, now_).elected);
  EXPECT_FALSE(asked_by(8, stood + 1).granted);
}

// Of the five votes that it needs three, its own among them.
TEST_F(LeadershipTest, IsElectedByVotersAlone) {
  std::vector<Voter> voters;
  for (const std::uint64_t one : {7, 8, 9, 10, 11}) voters.push_back({one, "h", {"h", 1}});
  EXPECT_FALSE(elects(voters, 9, {granted_by(8), granted_by(77)})) << "77 is no voter";
  EXPECT_FALSE(elects(voters, 9, {granted_by(8), granted_by(9)})) << "its own counts once";
  EXPECT_TRUE(elects(voters, 9, {granted_by(8), granted_by(10)}));
}

// Who knows less may have stood more often; it is not to keep ahead of those who can be elected.
TEST_F(LeadershipTest, StandsForATermAfterAllThatOthersHavePromised) {
  now_ += seconds(5);
  VoteAnswer busy = granted_by(8);
  busy.granted = false;
  busy.current_term = 7;
  ASSERT_TRUE(leadership_.acquire(now_).request->probe);
  leadership_.answered({busy}, now_);
  EXPECT_EQ(leadership_.acquire(now_).request->term, 8U);
}

TEST_F(LeadershipTest, HearsNothingOfTheFormerLeaderOnceItHasVoted) {
  now_ += seconds(5);
  ASSERT_TRUE(asked_by(8, 2).granted);
  EXPECT_TRUE(leadership_.deserted());
  EXPECT_EQ(leadership_.follow(1), Leadership::Followed::refused);
  EXPECT_FALSE(leadership_.granted({9, seconds(4)}, now_ + seconds(4), now_));
  leadership_.hear(2, {});
  EXPECT_EQ(decode_ack(leadership_.ack())->match_index, 1U);
}

TEST_F(LeadershipTest, NobodyIsVotedForWhoAsksOnlyWhoLeads) {
  now_ += seconds(5);
  EXPECT_FALSE(asked_by(8, 0).granted);
  EXPECT_TRUE(leadership_.superseded_by({6, {"new", 2}}));
  EXPECT_EQ(asked_by(8, 0).leads, 6U);
  EXPECT_EQ(leadership_.acquire(now_).leaders.at(0).host, "new");
}

}  // namespace
}  // namespace dtrain::rendezvous
