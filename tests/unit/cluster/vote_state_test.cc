// One vote a term, none while a leader is followed, none for who knows less.
#include "cluster/quorum/vote_state.h"

#include <gtest/gtest.h>

#include "cluster/rendezvous/messages.h"
#include "cluster/rendezvous/session.h"

namespace dtrain::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A launcher that follows the leader of term 1 and has heard one piece of news.
class VoteStateTest : public testing::Test {
 protected:
  VoteStateTest() {
    vote_state_.set_leader({"leader", 1});
    vote_state_.with(session_, now_, [&] {
      Admission admission{1, {}, {}};
      admission.term = 1;
      admission.grant = {5, seconds(4)};
      answer(1, join_answer(0, encode(admission)));
      Leadership leadership;
      leadership.voters = {{7, "a", {"a", 1}}, {8, "b", {"b", 1}}, {9, "c", {"c", 1}}};
      answer(2, encode(News(leadership)));
    });
  }
  void answer(std::uint64_t request, std::string value) {
    std::string bytes;
    to_session_.append(bytes, wire::encode(wire::Response{request, wire::Status::ok, std::move(value)}));
    session_.receive(bytes, now_);
  }
  void pass(Duration time) {
    now_ += time;
    vote_state_.with(session_, now_, [&] { session_.tick(now_); });
  }
  // The leader of `term` admits it again.
  void come_back_to(std::uint64_t term) {
    session_.resume(wire::FrameReader(MacKey("down")), wire::FrameWriter(MacKey("up")), now_);
    to_session_ = wire::FrameWriter(MacKey("down"));
    Admission admission{1, {}, {}};
    admission.term = term;
    admission.grant = {9, seconds(4)};
    wire::FrameReader asked(MacKey("up"));
    asked.feed(session_.out());
    std::string_view join;
    ASSERT_EQ(asked.next(join), wire::FrameReader::Result::frame);
    vote_state_.with(session_, now_,
                     [&] { answer(wire::decode_request(join)->id, join_answer(0, encode(admission))); });
  }
  VoteRequest request(std::uint64_t term, std::uint64_t events = 1) const { return {term, 8, 1, events}; }

  TimePoint now_{seconds(100)};
  wire::FrameWriter to_session_{MacKey("down")};
  Session session_{wire::FrameReader(MacKey("down")),
                   wire::FrameWriter(MacKey("up")),
                   {1, "host1", "", 2, {}, 9},
                   {},
                   now_};
  VoteState vote_state_;
};

TEST_F(VoteStateTest, FollowsALeaderAsLongAsItsLeaseLasts) {
  EXPECT_EQ(session_.known().events, 1U);
  pass(seconds(3));
  const VoteAnswer answer = vote_state_.answer(request(2), now_);
  EXPECT_FALSE(answer.granted);
  EXPECT_EQ(answer.leads, 1U);
  EXPECT_EQ(answer.leader.host, "leader");
  EXPECT_EQ(vote_state_.stand(9, now_, false).term, 0U);
}

// Where it led itself, cut off from its own server: others had their leases of it until then.
TEST_F(VoteStateTest, SaysSinceWhenItHasGrantedNothing) {
  pass(seconds(5));
  vote_state_.granted(now_);
  now_ += seconds(1);
  const VoteAnswer answer = vote_state_.answer(request(2), now_);
  EXPECT_TRUE(answer.granted);
  EXPECT_EQ(answer.heard_ago, seconds(1));
}

TEST_F(VoteStateTest, VotesOnceAnTermAndSaysSinceWhenItHasHeardNothing) {
  pass(seconds(5));
  EXPECT_TRUE(session_.orphaned());
  const VoteAnswer answer = vote_state_.answer(request(2), now_);
  EXPECT_TRUE(answer.granted);
  EXPECT_EQ(answer.heard_ago, seconds(5));
  EXPECT_EQ(answer.leads, 0U) << "the leader before is not followed any more";
  pass(seconds(1));
  EXPECT_FALSE(vote_state_.answer(request(2), now_).granted);
  EXPECT_TRUE(vote_state_.answer(request(3), now_).granted);
  EXPECT_EQ(vote_state_.stand(9, now_, false).term, 0U);
  EXPECT_EQ(vote_state_.stand(9, now_ + seconds(1), false).term, 4U);
  EXPECT_FALSE(vote_state_.answer(request(4), now_ + seconds(2)).granted) << "it has voted for itself";
}

// Of four launchers of which one is lost, all three must be free to vote for the same one.
TEST_F(VoteStateTest, VotesAgainForWhomItHasJustVotedFor) {
  pass(seconds(5));
  ASSERT_TRUE(vote_state_.answer(request(2), now_).granted);
  VoteRequest another = request(3);
  another.instance_id = 7;
  EXPECT_FALSE(vote_state_.answer(another, now_ + milliseconds(100)).granted);
  EXPECT_TRUE(vote_state_.answer(request(4), now_ + milliseconds(100)).granted);
}

TEST_F(VoteStateTest, AProbeIsAnsweredAsTheVoteWouldBeAndBindsNobody) {
  pass(seconds(5));
  VoteRequest probe = request(7);
  probe.probe = true;
  EXPECT_TRUE(vote_state_.answer(probe, now_).granted);
  VoteRequest another = request(2);
  another.instance_id = 7;
  EXPECT_TRUE(vote_state_.answer(another, now_).granted);
  EXPECT_FALSE(vote_state_.answer(probe, now_).granted) << "it has voted for another one since";
  EXPECT_EQ(vote_state_.stand(9, now_ + seconds(1), true).term, 3U);
  EXPECT_TRUE(vote_state_.may_follow(2));
}

TEST_F(VoteStateTest, FollowsALowerTermThanThatForWhichItStoodInVain) {
  pass(seconds(5));
  const std::uint64_t stood = vote_state_.stand(9, now_, false).term;
  EXPECT_FALSE(vote_state_.may_follow(stood - 1));
  EXPECT_FALSE(vote_state_.settle(false, now_));
  EXPECT_TRUE(vote_state_.may_follow(stood - 1));
  const std::uint64_t again = vote_state_.stand(9, now_, false).term;
  EXPECT_EQ(again, stood + 1) << "no term is stood for twice";
  EXPECT_TRUE(vote_state_.settle(true, now_));
  EXPECT_FALSE(vote_state_.may_follow(again - 1)) << "it leads";
}

// Its own vote would count for both leaders, and no launcher need have heard of both.
TEST_F(VoteStateTest, DoesNotLeadWhenItHasVotedForALaterTermWhileItStood) {
  pass(seconds(5));
  const std::uint64_t stood = vote_state_.stand(9, now_, false).term;
  ASSERT_TRUE(vote_state_.answer(request(stood + 1), now_).granted);
  EXPECT_FALSE(vote_state_.settle(true, now_));
  EXPECT_FALSE(vote_state_.may_follow(stood));
  EXPECT_TRUE(vote_state_.may_follow(stood + 1));
}

TEST_F(VoteStateTest, GivesNoVoteBetweenItsElectionAndItsLead) {
  pass(seconds(5));
  const std::uint64_t stood = vote_state_.stand(9, now_, false).term;
  ASSERT_TRUE(vote_state_.settle(true, now_));
  EXPECT_FALSE(vote_state_.answer(request(stood + 1), now_).granted);
}

// Its time to find a leader is not renewed by one who must not be followed.
TEST_F(VoteStateTest, WhoHasVotedForAnotherStaysWithoutALeaderWhereAFormerOneAdmitsIt) {
  pass(seconds(5));
  ASSERT_TRUE(vote_state_.answer(request(3), now_).granted);
  ASSERT_NO_FATAL_FAILURE(come_back_to(2));
  EXPECT_TRUE(session_.orphaned());
}

// Who knows less may have stood more often; it is not to keep ahead of those who can be elected.
TEST_F(VoteStateTest, StandsForAnTermAfterAllThatOthersHavePromised) {
  pass(seconds(5));
  vote_state_.hear_of(7);
  EXPECT_EQ(vote_state_.stand(9, now_, false).term, 8U);
  vote_state_.hear_of(3);
  EXPECT_EQ(vote_state_.stand(9, now_, false).term, 9U);
}

TEST_F(VoteStateTest, DoesNotVoteForWhoKnowsLess) {
  pass(seconds(5));
  EXPECT_FALSE(vote_state_.answer(request(2, 0), now_).granted);
  EXPECT_TRUE(vote_state_.answer(request(2, 9), now_).granted);
}

TEST_F(VoteStateTest, DoesNotListenToTheLeaderBeforeOnceItHasVoted) {
  pass(seconds(5));
  ASSERT_TRUE(vote_state_.answer(request(2), now_).granted);
  ASSERT_NO_FATAL_FAILURE(come_back_to(1));
  EXPECT_TRUE(session_.interrupted());
  EXPECT_FALSE(session_.ended());
}

TEST_F(VoteStateTest, NobodyIsVotedForWhoAsksOnlyWhoLeads) {
  pass(seconds(5));
  EXPECT_FALSE(vote_state_.answer(request(0), now_).granted);
  vote_state_.hear({6, {"new", 2}});
  EXPECT_EQ(vote_state_.answer(request(0), now_).leads, 6U);
}

}  // namespace
}  // namespace dtrain::rendezvous
