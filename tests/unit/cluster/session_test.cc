// One conversation with the leader, message by message and with a clock of our own: the lease above all.
#include "cluster/rendezvous/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "cluster/rendezvous/messages.h"

namespace dtrain::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

// The other end: reads what a session sends, answers when told to.
class SessionTest : public testing::Test {
 protected:
  explicit SessionTest(Leadership* leadership = nullptr)
      : session_({1, "host1", "", 2, {}}, {}, now_, leadership) {}

  std::vector<wire::Request> asked() {
    std::vector<wire::Request> requests;
    for (const std::string& message : std::exchange(session_.out(), {}))
      requests.push_back(*wire::decode_request(message));
    return requests;
  }
  void answer(const wire::Request& request, std::string value = {}) {
    session_.receive(wire::encode(wire::Response{request.id, wire::Status::ok, std::move(value)}), now_);
  }
  // Joins; returns the request for the first event.
  wire::Request admit() {
    answer(asked().at(0), join_answer(5, encode(Admission{1, {}, {}})));
    return asked().at(0);
  }
  void reconnect() { session_.resume(now_); }
  // The connection ends, and at the leader's address another rendezvous answers.
  void reach_a_stranger() {
    session_.interrupt("the cable was pulled");
    reconnect();
    Admission nobody_knows{-1, {}, {}};
    nobody_knows.elsewhere = true;
    answer(asked().at(0), join_answer(0, encode(nobody_knows)));
  }
  void pass(Duration time) {
    now_ += time;
    session_.tick(now_);
  }
  LeaderEvent heard() {
    const auto bytes = session_.take();
    return bytes ? *decode_leader_event(*bytes) : LeaderEvent(Waiting{{"nothing"}});
  }

  TimePoint now_{seconds(100)};
  Session session_;
};

struct WithLeadership {
  Leadership leadership_{{9, "host1", seconds(4), {}, {}}};
};
// Of a launcher whose leader can be succeeded.
class SucceededSessionTest : private WithLeadership, public SessionTest {
 protected:
  SucceededSessionTest() : SessionTest(&leadership_) {}
};

TEST_F(SessionTest, JoinsThenWaitsForTheEventItIsTold) {
  const auto requests = asked();
  ASSERT_EQ(requests.size(), 1U);
  EXPECT_EQ(requests[0].keys.front(), kJoinKey);
  EXPECT_EQ(decode_offer(requests[0].value)->host, "host1");
  answer(requests[0], join_answer(5, encode(Admission{1, {}, {}})));
  EXPECT_EQ(asked().at(0).keys.front(), event_key(5));
}

TEST_F(SessionTest, ARefusalIsTheLastNews) {
  answer(asked().at(0), join_answer(0, encode(Admission{-1, "taken", {}})));
  EXPECT_EQ(std::get<Refused>(heard()).why, "taken");
  EXPECT_TRUE(session_.ended());
  pass(seconds(60));
  EXPECT_FALSE(session_.take());
}

// Where everybody is lost who knew the job, newcomers are sent to a leader that is there no more.
TEST_F(SessionTest, WhoFindsNoLeaderForTheTimeToJoinIsRefused) {
  Admission elsewhere{-1, {}, {}};
  elsewhere.elsewhere = true;
  elsewhere.leader = {"gpu7", 29501};
  for (int second = 0; second < 600; ++second) {
    ASSERT_FALSE(session_.ended());
    answer(asked().at(0), join_answer(0, encode(elsewhere)));
    pass(seconds(1));
    session_.rejoin(now_);
  }
  ASSERT_TRUE(session_.ended());
  const Refused refused = std::get<Refused>(heard());
  EXPECT_TRUE(refused.unreachable);
  EXPECT_THAT(refused.why, HasSubstr("after 600 s"));
  EXPECT_THAT(refused.why, HasSubstr("gpu7:29501"));
  EXPECT_THAT(refused.why, HasSubstr("start dtrain-launch again on every node"));
}

TEST_F(SessionTest, TheLeaseRunsFromWhenTheLastAnsweredBeatWasSent) {
  admit();
  pass(seconds(1));
  const auto beat = asked().at(0);
  EXPECT_EQ(beat.keys.front(), kBeatKey);
  // The answer is slow: the lease counts from the sending, 1 s after the join.
  pass(milliseconds(2900));
  answer(beat);
  pass(milliseconds(1050));
  EXPECT_FALSE(session_.ended());
  pass(milliseconds(60));
  EXPECT_THAT(std::get<LeaseLost>(heard()).why, HasSubstr("4.0 s"));
  // It says so, in case it is heard.
  EXPECT_EQ(asked().back().keys.front(), kSilenceKey);
}

TEST_F(SessionTest, AnAnswerAfterTheLeaseIsTooLate) {
  admit();
  pass(seconds(1));
  const auto beat = asked().at(0);
  now_ += seconds(5);  // stopped, with nobody to look at the clock
  answer(beat);
  EXPECT_TRUE(session_.ended());
  EXPECT_TRUE(std::holds_alternative<LeaseLost>(heard()));
}

TEST_F(SessionTest, AnsweredBeatsKeepTheLease) {
  admit();
  for (int i = 0; i < 100; ++i) {
    pass(seconds(1));
    for (const auto& request : asked()) answer(request);
  }
  EXPECT_FALSE(session_.ended());
}

TEST_F(SessionTest, ABrokenConnectionIsResumedWithTheWordsThatWereNotAnswered) {
  const auto event = admit();
  session_.say(Ended{3, 0}, now_);
  asked();  // sent, and lost on the way
  session_.interrupt("the cable was pulled");
  session_.say(Signalled{15}, now_);
  pass(seconds(2));
  EXPECT_TRUE(asked().empty()) << "nothing to send it over";
  reconnect();
  const auto requests = asked();
  ASSERT_EQ(requests.size(), 3U);
  EXPECT_TRUE(decode_offer(requests[0].value)->resumes);
  EXPECT_EQ(split_event(requests[1].value).number, 1U);
  EXPECT_TRUE(std::holds_alternative<Ended>(*decode_node_event(split_event(requests[1].value).event)));
  EXPECT_EQ(split_event(requests[2].value).number, 2U);
  answer(requests[0], join_answer(99, encode(Admission{1, {}, {}})));
  EXPECT_EQ(asked().at(0).keys.front(), event.keys.front()) << "the news that it has not heard";
  pass(milliseconds(3900));  // after the join was sent
  EXPECT_FALSE(session_.ended());
}

TEST_F(SessionTest, AConnectionThatComesTooLateIsALostLease) {
  admit();
  session_.interrupt("the cable was pulled");
  pass(milliseconds(3950));
  EXPECT_TRUE(session_.interrupted());
  pass(milliseconds(100));
  EXPECT_THAT(std::get<LeaseLost>(heard()).why, testing::AllOf(HasSubstr("4.0 s"), HasSubstr("cable")));
}

// As a kernel does for a process that is gone, where nobody can take the leader's place.
TEST_F(SessionTest, AConnectionThatTheLeadersMachineClosedIsNotWaitedForAsLongAsTheLease) {
  admit();
  pass(seconds(1));
  answer(asked().at(0));
  session_.hang_up("closed", now_);
  pass(milliseconds(1900));
  reconnect();
  asked();
  session_.hang_up("closed again", now_);
  pass(milliseconds(50));
  EXPECT_FALSE(session_.ended());
  pass(milliseconds(100));
  EXPECT_THAT(std::get<LeaseLost>(heard()).why, HasSubstr("closed"));
}

TEST_F(SessionTest, ASlotThatWasGivenUpIsALostLease) {
  admit();
  session_.interrupt("the cable was pulled");
  reconnect();
  answer(asked().at(0), join_answer(99, encode(Admission{-1, "continued without", {}})));
  EXPECT_EQ(std::get<LeaseLost>(heard()).why, "continued without");
}

// A launcher that has begun anew where the leader was knows of no slot, and whom to ask instead.
TEST_F(SucceededSessionTest, AnotherRendezvousAtTheSameAddressEndsNoSessionThatMayBeSucceeded) {
  answer(asked().at(0), join_answer(5, encode(Admission{1, {}, {}, false, {}, 1, {1, seconds(4)}})));
  Snapshot snapshot;
  snapshot.voters = {{1, "h0", {"10.0.0.1", 1}}, {2, "h1", {"10.0.0.2", 1}}, {3, "h2", {"10.0.0.3", 1}}};
  answer(asked().at(0), encode(LeaderEvent(snapshot)));
  answer(asked().at(0), encode(LeaderEvent(Forming{0, 0, {{0, "h0", 2, 0}, {1, "host1", 2, 2}}})));
  EXPECT_EQ(std::get<Forming>(heard()).round, 0);
  reach_a_stranger();
  EXPECT_TRUE(session_.interrupted());
  EXPECT_FALSE(session_.ended());
  pass(milliseconds(4100));
  EXPECT_TRUE(session_.orphaned()) << "the others elect a leader";
}

// It counts its events from 0 again, by another clock.
TEST_F(SucceededSessionTest, ShowsALeaderNothingThatTheOneBeforeHasTold) {
  const auto admitted_by = [](std::uint64_t term, std::int64_t stamp) {
    return join_answer(0, encode(Admission{1, {}, {}, false, {}, term, {stamp, seconds(4)}}));
  };
  const auto shown = [&] {
    pass(seconds(1));
    const auto requests = asked();
    const auto beat = std::find_if(requests.begin(), requests.end(),
                                   [](const wire::Request& one) { return one.keys.front() == kBeatKey; });
    return beat == requests.end() ? std::nullopt : decode_ack(beat->value);
  };
  answer(asked().at(0), admitted_by(1, 700));
  for (int i = 0; i < 3; ++i) answer(asked().at(0), encode(LeaderEvent(Waiting{{"two are missing"}})));
  ASSERT_EQ(shown()->match_index, 3U);
  session_.interrupt("the cable was pulled");
  reconnect();
  const wire::Request join = asked().at(0);
  const auto joining = shown();
  ASSERT_TRUE(joining);
  EXPECT_EQ(joining->term, 1U) << "who will admit it is open";
  answer(join, admitted_by(2, 5));
  const wire::Request event = asked().at(0);
  const auto admitted = shown();
  ASSERT_TRUE(admitted);
  EXPECT_EQ(admitted->term, 2U);
  EXPECT_EQ(admitted->stamp, 5);
  EXPECT_EQ(admitted->match_index, 0U);
}

// Also where that one began anew, with the same number.
TEST_F(SucceededSessionTest, ShowsNothingOfTheOneBeforeToOneThatItJoinsAfresh) {
  answer(asked().at(0), join_answer(0, encode(Admission{1, {}, {}, false, {}, 1, {700, seconds(4)}})));
  answer(asked().at(0), encode(LeaderEvent(Waiting{{"two are missing"}})));
  session_.interrupt("the cable was pulled");
  session_.rejoin(now_);
  answer(asked().at(0), join_answer(0, encode(Admission{1, {}, {}, false, {}, 1, {3, seconds(4)}})));
  asked();
  pass(seconds(1));
  const auto ack = decode_ack(asked().at(0).value);
  ASSERT_TRUE(ack);
  EXPECT_EQ(ack->stamp, 3);
  EXPECT_EQ(ack->match_index, 0U);
}

// Nobody else can lead this job, and its workers must not be another one's.
TEST_F(SessionTest, AnotherRendezvousAtTheSameAddressEndsASessionWithoutSuccessors) {
  const auto event = admit();
  answer(event, encode(LeaderEvent(Forming{0, 0, {{0, "h0", 2, 0}, {1, "host1", 2, 2}}})));
  EXPECT_EQ(std::get<Forming>(heard()).round, 0);
  reach_a_stranger();
  EXPECT_THAT(std::get<LeaseLost>(heard()).why, HasSubstr("another one has started"));
}

TEST_F(SessionTest, WhoIsAboutToLeaveSaysItsWordsButBeatsNoMore) {
  admit();
  pass(milliseconds(1100));
  answer(asked().at(0));
  session_.hush();
  pass(seconds(20));
  EXPECT_TRUE(asked().empty());
  EXPECT_FALSE(session_.ended());
  session_.say(Gone{}, now_);
  EXPECT_EQ(asked().at(0).keys.at(0), kNodeEventKey);
}

TEST_F(SessionTest, WhoseJoinWasNotAnsweredAsksAgainForAsLongAsALease) {
  session_.interrupt("the cable was pulled");
  asked();
  pass(seconds(2));
  reconnect();
  const auto requests = asked();
  ASSERT_EQ(requests.size(), 1U);
  EXPECT_FALSE(decode_offer(requests[0].value)->resumes);
  session_.interrupt("the cable was pulled");
  pass(milliseconds(2100));
  EXPECT_THAT(std::get<LeaseLost>(heard()).why, HasSubstr("cable"));
}

// Suspended with a good connection: the answer to an old beat waits in the socket when the machine wakes.
TEST_F(SessionTest, AMachineThatSleptTooLongHasNoLease) {
  admit();
  pass(seconds(1));
  const auto beat = asked().at(0);
  now_ += seconds(3600);
  answer(beat);
  EXPECT_TRUE(std::holds_alternative<LeaseLost>(heard()));
}

TEST_F(SessionTest, RoundsWithoutUsAreNotHeardOf) {
  auto event = admit();
  const auto publish = [&](const LeaderEvent& told) {
    answer(event, encode(told));
    event = asked().at(0);
  };
  publish(Forming{0, 0, {{0, "a", 1, 0}, {2, "c", 1, 1}}});
  publish(Start{0, 0, 0, {{0, "a", 1, 0}, {2, "c", 1, 1}}, 1, 1, "run"});
  publish(Stop{0, false, false, {}, false, {}});
  EXPECT_FALSE(session_.take());
  publish(Forming{1, 0, {{0, "a", 1, 0}, {1, "b", 1, 1}, {2, "c", 1, 2}}});
  EXPECT_EQ(std::get<Forming>(heard()).self, 1);
  publish(Stop{0, false, false, {}, false, {}});
  EXPECT_FALSE(session_.take());
  publish(Start{1, 0, 0, {{0, "a", 1, 0}, {1, "b", 1, 1}}, 1, 1, "run"});
  EXPECT_EQ(std::get<Start>(heard()).self, 1);
  answer(event, encode(LeaderEvent(Over{3, {}})));
  EXPECT_EQ(std::get<Over>(heard()).exit_code, 3);
  EXPECT_TRUE(session_.ended());
  session_.say(Ready{}, now_);
  const auto last = asked();
  ASSERT_EQ(last.size(), 1U) << "nothing is said after the end";
  EXPECT_EQ(last[0].keys.front(), kHeardKey);
}

TEST_F(SessionTest, OddAnswersEndIt) {
  admit();
  answer({.op = wire::Op::set, .id = 77, .keys = {}, .value = {}, .expected = {}});
  EXPECT_THAT(std::get<LeaseLost>(heard()).why, HasSubstr("an answer without a request"));
}

TEST_F(SessionTest, BytesThatAreNoResponseEndIt) {
  session_.receive(std::string(64, '\xff'), now_);
  EXPECT_THAT(std::get<LeaseLost>(heard()).why, HasSubstr("malformed"));
}

TEST_F(SessionTest, AMalformedAdmissionEndsIt) {
  answer(asked().at(0), "x");
  EXPECT_THAT(std::get<LeaseLost>(heard()).why, HasSubstr("admission"));
}

}  // namespace
}  // namespace dtrain::rendezvous
