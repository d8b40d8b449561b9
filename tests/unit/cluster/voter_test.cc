// One vote an epoch, none while a leader is followed, none for who knows less.
#include "cluster/rendezvous/voter.h"

#include <gtest/gtest.h>

#include "cluster/rendezvous/messages.h"

namespace dtrain::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A launcher that follows the leader of epoch 1 and has heard one piece of news.
class VoterTest : public testing::Test {
 protected:
  VoterTest() {
    voter_.set_leader({"leader", 1});
    voter_.with(session_, now_, [&] {
      Admission admission{1, {}, {}};
      admission.epoch = 1;
      admission.grant = {5, seconds(4)};
      answer(1, join_answer(0, encode(admission)));
      Leadership leadership;
      leadership.council = {{7, "a", {"a", 1}}, {8, "b", {"b", 1}}, {9, "c", {"c", 1}}};
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
    voter_.with(session_, now_, [&] { session_.tick(now_); });
  }
  // The leader of `epoch` admits it again.
  void come_back_to(std::uint64_t epoch) {
    session_.resume(wire::FrameReader(MacKey("down")), wire::FrameWriter(MacKey("up")), now_);
    to_session_ = wire::FrameWriter(MacKey("down"));
    Admission admission{1, {}, {}};
    admission.epoch = epoch;
    admission.grant = {9, seconds(4)};
    wire::FrameReader asked(MacKey("up"));
    asked.feed(session_.out());
    std::string_view join;
    ASSERT_EQ(asked.next(join), wire::FrameReader::Result::frame);
    voter_.with(session_, now_,
                [&] { answer(wire::decode_request(join)->id, join_answer(0, encode(admission))); });
  }
  VoteRequest request(std::uint64_t epoch, std::uint64_t events = 1) const { return {epoch, 8, 1, events}; }

  TimePoint now_{seconds(100)};
  wire::FrameWriter to_session_{MacKey("down")};
  Session session_{wire::FrameReader(MacKey("down")),
                   wire::FrameWriter(MacKey("up")),
                   {1, "host1", "", 2, {}, 9},
                   {},
                   now_};
  Voter voter_;
};

TEST_F(VoterTest, FollowsALeaderAsLongAsItsLeaseLasts) {
  EXPECT_EQ(session_.known().events, 1U);
  pass(seconds(3));
  const VoteAnswer answer = voter_.answer(request(2), now_);
  EXPECT_FALSE(answer.granted);
  EXPECT_EQ(answer.leads, 1U);
  EXPECT_EQ(answer.leader.host, "leader");
  EXPECT_EQ(voter_.stand(9, now_, false).epoch, 0U);
}

TEST_F(VoterTest, VotesOnceAnEpochAndSaysSinceWhenItHasHeardNothing) {
  pass(seconds(5));
  EXPECT_TRUE(session_.orphaned());
  const VoteAnswer answer = voter_.answer(request(2), now_);
  EXPECT_TRUE(answer.granted);
  EXPECT_EQ(answer.heard_ago, seconds(5));
  EXPECT_EQ(answer.leads, 0U) << "the leader before is not followed any more";
  pass(seconds(1));
  EXPECT_FALSE(voter_.answer(request(2), now_).granted);
  EXPECT_TRUE(voter_.answer(request(3), now_).granted);
  EXPECT_EQ(voter_.stand(9, now_, false).epoch, 0U);
  EXPECT_EQ(voter_.stand(9, now_ + seconds(1), false).epoch, 4U);
  EXPECT_FALSE(voter_.answer(request(4), now_ + seconds(2)).granted) << "it has voted for itself";
}

// Of four launchers of which one is lost, all three must be free to vote for the same one.
TEST_F(VoterTest, VotesAgainForWhomItHasJustVotedFor) {
  pass(seconds(5));
  ASSERT_TRUE(voter_.answer(request(2), now_).granted);
  VoteRequest another = request(3);
  another.incarnation = 7;
  EXPECT_FALSE(voter_.answer(another, now_ + milliseconds(100)).granted);
  EXPECT_TRUE(voter_.answer(request(4), now_ + milliseconds(100)).granted);
}

TEST_F(VoterTest, AProbeIsAnsweredAsTheVoteWouldBeAndBindsNobody) {
  pass(seconds(5));
  VoteRequest probe = request(7);
  probe.probe = true;
  EXPECT_TRUE(voter_.answer(probe, now_).granted);
  VoteRequest another = request(2);
  another.incarnation = 7;
  EXPECT_TRUE(voter_.answer(another, now_).granted);
  EXPECT_FALSE(voter_.answer(probe, now_).granted) << "it has voted for another one since";
  EXPECT_EQ(voter_.stand(9, now_ + seconds(1), true).epoch, 3U);
  EXPECT_TRUE(voter_.may_follow(2));
}

TEST_F(VoterTest, FollowsALowerEpochThanThatForWhichItStoodInVain) {
  pass(seconds(5));
  const std::uint64_t stood = voter_.stand(9, now_, false).epoch;
  EXPECT_FALSE(voter_.may_follow(stood - 1));
  EXPECT_FALSE(voter_.settle(false, now_));
  EXPECT_TRUE(voter_.may_follow(stood - 1));
  const std::uint64_t again = voter_.stand(9, now_, false).epoch;
  EXPECT_EQ(again, stood + 1) << "no epoch is stood for twice";
  EXPECT_TRUE(voter_.settle(true, now_));
  EXPECT_FALSE(voter_.may_follow(again - 1)) << "it leads";
}

// Its own vote would count for both leaders, and no launcher need have heard of both.
TEST_F(VoterTest, DoesNotLeadWhenItHasVotedForALaterEpochWhileItStood) {
  pass(seconds(5));
  const std::uint64_t stood = voter_.stand(9, now_, false).epoch;
  ASSERT_TRUE(voter_.answer(request(stood + 1), now_).granted);
  EXPECT_FALSE(voter_.settle(true, now_));
  EXPECT_FALSE(voter_.may_follow(stood));
  EXPECT_TRUE(voter_.may_follow(stood + 1));
}

TEST_F(VoterTest, GivesNoVoteBetweenItsElectionAndItsLead) {
  pass(seconds(5));
  const std::uint64_t stood = voter_.stand(9, now_, false).epoch;
  ASSERT_TRUE(voter_.settle(true, now_));
  EXPECT_FALSE(voter_.answer(request(stood + 1), now_).granted);
}

// Its time to find a leader is not renewed by one who must not be followed.
TEST_F(VoterTest, WhoHasVotedForAnotherStaysWithoutALeaderWhereAFormerOneAdmitsIt) {
  pass(seconds(5));
  ASSERT_TRUE(voter_.answer(request(3), now_).granted);
  ASSERT_NO_FATAL_FAILURE(come_back_to(2));
  EXPECT_TRUE(session_.orphaned());
}

// Who knows less may have stood more often; it is not to keep ahead of those who can be elected.
TEST_F(VoterTest, StandsForAnEpochAfterAllThatOthersHavePromised) {
  pass(seconds(5));
  voter_.hear_of(7);
  EXPECT_EQ(voter_.stand(9, now_, false).epoch, 8U);
  voter_.hear_of(3);
  EXPECT_EQ(voter_.stand(9, now_, false).epoch, 9U);
}

TEST_F(VoterTest, DoesNotVoteForWhoKnowsLess) {
  pass(seconds(5));
  EXPECT_FALSE(voter_.answer(request(2, 0), now_).granted);
  EXPECT_TRUE(voter_.answer(request(2, 9), now_).granted);
}

TEST_F(VoterTest, DoesNotListenToTheLeaderBeforeOnceItHasVoted) {
  pass(seconds(5));
  ASSERT_TRUE(voter_.answer(request(2), now_).granted);
  ASSERT_NO_FATAL_FAILURE(come_back_to(1));
  EXPECT_TRUE(session_.interrupted());
  EXPECT_FALSE(session_.ended());
}

TEST_F(VoterTest, NobodyIsVotedForWhoAsksOnlyWhoLeads) {
  pass(seconds(5));
  EXPECT_FALSE(voter_.answer(request(0), now_).granted);
  voter_.hear({6, {"new", 2}});
  EXPECT_EQ(voter_.answer(request(0), now_).leads, 6U);
}

}  // namespace
}  // namespace dtrain::rendezvous
