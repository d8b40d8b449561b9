// Rounds that examine nodes: who is unfit is kept out, spares take the place, and who was is remembered.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/rendezvous/messages.h"
#include "tests/unit/cluster/membership_job.h"

namespace dtrain::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

JobRules examined(JobRules rules, int spares = 0) {
  rules.examines = true;
  rules.spares = spares;
  return rules;
}

Failed unfit(int round) {
  Failed failed = worker_failed(round, 1);
  failed.failure.lines = {
      "rank 1 (node_rank 1, host gpu1) failed first: exit code 1",
      "its last lines on stderr:", "    dtrain: rank 1: this node is unfit: disk write 12 MB/s"};
  return failed;
}

// Round `round` runs on `ids`, and `sick` fails in it.
void fail_on(Job& job, int round, const std::vector<ConnectionId>& ids, ConnectionId sick) {
  job.ready_all(ids, round);
  ASSERT_EQ(job.last<Start>().round, round);
  job.say(sick, unfit(round));
  job.pass(milliseconds(60));
  for (const ConnectionId id : ids) job.say(id, Ended{round, id == sick ? 1 : 143});
}

std::vector<std::string> hosts_of(const Forming& forming) {
  std::vector<std::string> hosts;
  for (const RoundNode& node : forming.nodes) hosts.push_back(node.host);
  return hosts;
}

TEST(Examination, GoesBeforeTheFirstRoundAndBeforeEachRestart) {
  Job job(examined(fixed(2, 3)));
  job.join_all(2);
  job.ready_all({0, 1}, 0);
  EXPECT_TRUE(job.last<Start>().examines);
  job.ended_all({0, 1}, 0, 0);
  job.ready_all({0, 1}, 1);
  EXPECT_FALSE(job.last<Start>().examines);
  EXPECT_EQ(job.last<Start>().restart_count, 0);
  job.say(1, worker_failed(1, 7));
  job.pass(milliseconds(60));
  job.ended_all({0, 1}, 1, 7);
  job.ready_all({0, 1}, 2);
  EXPECT_TRUE(job.last<Start>().examines);
  EXPECT_EQ(job.last<Start>().restart_count, 1);
  job.ended_all({0, 1}, 2, 0);
  job.ready_all({0, 1}, 3);
  EXPECT_FALSE(job.last<Start>().examines);
  EXPECT_EQ(job.last<Start>().restart_count, 1) << "examining is no restart";
  job.ended_all({0, 1}, 3, 0);
  EXPECT_EQ(job.last<Over>().exit_code, 0);
}

TEST(Examination, ASpareTakesTheUnfitNodesPlaceAndIsExaminedToo) {
  Job job(examined(fixed(3, 3), 1));
  job.join_all(4);
  fail_on(job, 0, {0, 1, 2}, 1);
  ASSERT_TRUE(job.last<Stop>().again);
  EXPECT_EQ(job.last<KeptOut>().place, 1);
  EXPECT_EQ(job.last<KeptOut>().why,
            "node_rank 1 (host gpu1, 10.0.0.1 (eth0)) is kept out of this job: this node is unfit: disk "
            "write 12 MB/s");
  EXPECT_THAT(hosts_of(job.last<Forming>()), ElementsAre("gpu0", "gpu3", "gpu2"));
  job.ready_all({0, 3, 2}, 1);
  EXPECT_TRUE(job.last<Start>().examines);
  job.ended_all({0, 3, 2}, 1, 0);
  job.ready_all({0, 3, 2}, 2);
  EXPECT_FALSE(job.last<Start>().examines);
  EXPECT_EQ(job.last<Start>().restart_count, 0);
}

TEST(Examination, WhoWasKeptOutIsNotTakenBack) {
  Job job(examined(fixed(3, 3), 1));
  job.join_all(4);
  fail_on(job, 0, {0, 1, 2}, 1);
  const Admission again = job.join(9, offer_of(1));
  EXPECT_THAT(again.refused, HasSubstr("is kept out of this job: this node is unfit"));
  EXPECT_FALSE(job.over());
  // By another leader neither.
  const auto bytes = decode_leader_event(encode(LeaderEvent(job.snapshot())));
  ASSERT_TRUE(bytes);
  Membership successor(examined(fixed(3, 3), 1),
                       {std::get<Snapshot>(*bytes), TimePoint{seconds(1000)}, "", 2},
                       TimePoint{seconds(1000)});
  EXPECT_THAT(successor.join(1, offer_of(1), TimePoint{seconds(1001)}).refused,
              HasSubstr("disk write 12 MB/s"));
}

TEST(Examination, OfLaunchersThatShareAHostsNameOnlyOneIsKeptOut) {
  Job job(examined(fixed(3, 3), 1));
  for (int place = 0; place < 4; ++place) {
    NodeOffer offer = offer_of(place);
    offer.host = "box";
    EXPECT_EQ(job.join(static_cast<ConnectionId>(place), offer).refused, "");
  }
  fail_on(job, 0, {0, 1, 2}, 1);
  NodeOffer offer = offer_of(1);
  offer.host = "box";
  EXPECT_EQ(job.join(9, offer).refused, "");
}

TEST(Examination, WhereNobodyCanTakeThePlaceTheJobEndsWithTheReason) {
  for (const int restarts : {0, 3}) {
    Job job(examined(fixed(2, restarts)));
    job.join_all(2);
    fail_on(job, 0, {0, 1}, restarts == 0 ? 1 : 0);  // with restarts: the leader's own node
    ASSERT_TRUE(job.over()) << restarts;
    EXPECT_EQ(job.last<Over>().exit_code, 1);
    EXPECT_THAT(job.last<Over>().failure->lines.back(),
                HasSubstr("is unfit, and no other node can take its place: "
                          "this node is unfit: disk write 12 MB/s"));
    EXPECT_THAT(job.all<KeptOut>(), IsEmpty());
  }
}

TEST(Examination, AnElasticJobStartsWithoutAnUnfitNode) {
  Job job(examined(elastic(2, 3)));
  job.join_all(3);
  fail_on(job, 0, {0, 1, 2}, 1);
  EXPECT_EQ(job.last<KeptOut>().place, 1);
  EXPECT_THAT(hosts_of(job.last<Forming>()), ElementsAre("gpu0", "gpu2"));
}

TEST(Examination, ANewcomerIsExaminedBeforeItTakesPart) {
  Job job(examined(elastic(2, 3)));
  job.join_all(2);
  job.pass(seconds(31));  // MIN nodes start without the third
  job.ready_all({0, 1}, 0);
  job.ended_all({0, 1}, 0, 0);
  job.ready_all({0, 1}, 1);
  ASSERT_FALSE(job.last<Start>().examines);
  EXPECT_EQ(job.join(2).refused, "");
  ASSERT_TRUE(job.last<Stop>().checkpoint_first);
  job.ended_all({0, 1}, 1, 75);
  EXPECT_THAT(hosts_of(job.last<Forming>()), ElementsAre("gpu0", "gpu1", "gpu2"));
  job.ready_all({0, 1, 2}, 2);
  EXPECT_TRUE(job.last<Start>().examines);
}

TEST(Examination, AHangThatNobodyCanBeBlamedForEndsTheJob) {
  Job job(examined(fixed(2, 3), 1));
  job.join_all(3);
  job.ready_all({0, 1}, 0);
  job.say(1, worker_failed(0, 4, {}, true));
  job.pass(seconds(1));
  job.ended_all({0, 1}, 0, 4);
  EXPECT_TRUE(job.over());
  EXPECT_THAT(job.all<KeptOut>(), IsEmpty());
}

TEST(Examination, TheUnfitNodesSessionEndsWithTheReasonAndOthersHearIt) {
  const std::string event = encode(LeaderEvent(KeptOut{3, "it is sick"}));
  EXPECT_TRUE(is_kept_out(event));
  const auto decoded = decode_leader_event(event);
  ASSERT_TRUE(decoded);
  EXPECT_EQ(std::get<KeptOut>(*decoded).place, 3);
  EXPECT_EQ(std::get<KeptOut>(*decoded).why, "it is sick");
}

}  // namespace
}  // namespace dtrain::rendezvous
