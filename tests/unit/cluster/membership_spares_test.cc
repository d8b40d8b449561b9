// Jobs of fixed size that continue after a node is lost: spares replace it, replacements are waited for.
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
using testing::Pair;

JobRules spared(int nodes, int spares, int restarts = 3) {
  JobRules rules = fixed(nodes, restarts);
  rules.spares = spares;
  return rules;
}

// Three nodes that run, and a spare in slot 3.
Job with_spare() {
  Job job = running(spared(3, 1));
  EXPECT_EQ(job.join(3).refused, "");
  return job;
}

std::vector<std::string> hosts_of(const std::vector<RoundNode>& nodes) {
  std::vector<std::string> hosts;
  for (const RoundNode& node : nodes) hosts.push_back(node.host);
  return hosts;
}

TEST(Spares, AJobStartsWithItsNodesAndLetsSparesWait) {
  Job job(spared(3, 1));
  for (const int place : {3, 0, 1}) EXPECT_EQ(job.join(place).refused, "");
  EXPECT_EQ(job.count<Forming>(), 0U);
  job.pass(seconds(6));
  EXPECT_THAT(job.waiting_text(), HasSubstr("2/3 nodes and 1 of 1 spares; missing node_rank 2"));
  EXPECT_EQ(job.join(2).refused, "");
  EXPECT_THAT(hosts_of(job.last<Forming>().nodes), ElementsAre("gpu0", "gpu1", "gpu2"));
  EXPECT_THAT(job.last<Forming>().displaced, ElementsAre(Pair(3, -1)));
}

TEST(Spares, OneTakesThePlaceOfANodeThatIsLost) {
  Job job = with_spare();
  job.mute(1);
  job.pass(seconds(7));
  ASSERT_TRUE(job.last<Stop>().again);
  EXPECT_EQ(job.last<Stop>().failure->node_rank, 1);
  job.ended_all({0, 2}, 0, 143);
  ASSERT_EQ(job.count<Forming>(), 2U);
  const Forming next = job.last<Forming>();
  EXPECT_THAT(hosts_of(next.nodes), ElementsAre("gpu0", "gpu3", "gpu2")) << "ranks stay where they are";
  EXPECT_THAT(next.displaced, ElementsAre(Pair(1, -1), Pair(3, 1)));
  // Where the lost one comes back to the job, under another leader too, it is not node 1 beside the spare.
  EXPECT_EQ(index_in_round(encode(LeaderEvent(next)), 1), std::nullopt);
  EXPECT_EQ(index_in_round(encode(LeaderEvent(next)), 3), 1);
  job.ready_all({0, 2, 3}, 1);
  EXPECT_EQ(job.last<Start>().restart_count, 1);
  EXPECT_EQ(job.last<Start>().round, 1);
}

// A thousand of a hundred thousand at once, which a walk over all nodes for each would take minutes for.
TEST(Spares, ManyReplaceManyInAVeryLargeJob) {
  constexpr int kNodes = 98'000, kSpares = 2'000, kLost = 1'000;
  const TimePoint begin = steady_clock().now();
  Job job = running(spared(kNodes, kSpares));
  for (int place = kNodes; place < kNodes + kSpares; ++place) ASSERT_EQ(job.join(place).refused, "");
  for (int node = kNodes - kLost; node < kNodes; ++node)
    job.leave(static_cast<ConnectionId>(node), Departure::closed);
  job.pass(milliseconds(60));
  ASSERT_TRUE(job.last<Stop>().again);
  std::vector<ConnectionId> left;
  for (int node = 0; node < kNodes - kLost; ++node) left.push_back(static_cast<ConnectionId>(node));
  job.ended_all(left, 0, 143);
  ASSERT_EQ(job.count<Forming>(), 2U);
  const Forming next = job.last<Forming>();
  ASSERT_EQ(next.nodes.size(), static_cast<std::size_t>(kNodes));
  EXPECT_EQ(next.nodes.back().host, "gpu" + std::to_string(kNodes + kLost - 1));
  EXPECT_LT(steady_clock().now() - begin, seconds(60)) << "one or two by itself";
}

TEST(Spares, ANodeThatComesBackIsTheNextSpare) {
  Job job = with_spare();
  job.mute(1);
  job.pass(seconds(7));
  job.ended_all({0, 2}, 0, 143);
  job.ready_all({0, 2, 3}, 1);
  EXPECT_EQ(job.join(11, offer_of(1)).refused, "");
  EXPECT_EQ(job.count<Stop>(), 1U) << "it is not worth a restart";
  job.leave(3, Departure::closed);
  job.pass(milliseconds(100));
  job.ended_all({0, 2}, 1, 143);
  EXPECT_THAT(hosts_of(job.last<Forming>().nodes), ElementsAre("gpu0", "gpu1", "gpu2"));
  EXPECT_THAT(job.last<Forming>().displaced, IsEmpty());
}

TEST(Spares, LosingOneThatWaitsCostsNothing) {
  Job job = with_spare();
  job.leave(3, Departure::closed);
  job.pass(seconds(1));
  EXPECT_EQ(job.count<Stop>(), 0U);
  EXPECT_EQ(job.join(13, offer_of(3)).refused, "");
}

TEST(Spares, AreUsedAtTheStartForANodeThatDoesNotCome) {
  JobRules rules = spared(3, 1);
  rules.last_call = seconds(10);
  Job job(rules);
  for (const int place : {0, 3, 2}) job.join(place);
  job.pass(seconds(9));
  EXPECT_EQ(job.count<Forming>(), 0U);
  job.pass(seconds(2));
  EXPECT_THAT(hosts_of(job.last<Forming>().nodes), ElementsAre("gpu0", "gpu3", "gpu2"));
}

TEST(Spares, MoreThanAreMeantAreRefused) {
  Job job = with_spare();
  EXPECT_THAT(job.join(14, offer_of({})).refused, HasSubstr("4 of 4 nodes have joined"));
  EXPECT_THAT(job.join(15, offer_of(4)).refused, HasSubstr("0 to 3, the last 1 of them spares"));
  EXPECT_THAT(job.join(16, offer_of(3)).refused, HasSubstr("node_rank 3 is taken"));
}

TEST(Replacements, AreWaitedForWithinTheJoinTimeout) {
  Job job = running(fixed(3, 2));
  job.mute(2);
  job.pass(seconds(7));
  EXPECT_TRUE(job.last<Stop>().again);
  job.ended_all({0, 1}, 0, 143);
  EXPECT_FALSE(job.over());
  job.pass(seconds(60));
  EXPECT_THAT(job.waiting_text(), HasSubstr("2/3 nodes; missing node_rank 2"));
  EXPECT_EQ(job.join(12, offer_of(2)).refused, "");
  EXPECT_EQ(job.last<Forming>().round, 1);
  job.ready_all({0, 1, 12}, 1);
  EXPECT_EQ(job.last<Start>().restart_count, 1);
}

TEST(Replacements, MayComeBeforeTheLossIsKnown) {
  Job job = running(fixed(3, 2));
  job.leave(2, Departure::broken);
  EXPECT_EQ(job.join(12, offer_of(2)).refused, "");
  job.pass(seconds(7));
  job.ended_all({0, 1}, 0, 143);
  ASSERT_EQ(job.count<Forming>(), 2U);
  job.ready_all({0, 1, 12}, 1);
  EXPECT_EQ(job.count<Start>(), 2U);
}

TEST(Replacements, ThatDoNotComeEndTheJob) {
  JobRules rules = fixed(3, 2);
  rules.join_timeout = seconds(20);
  Job job = running(rules);
  job.leave(2, Departure::closed);
  job.pass(milliseconds(100));
  job.ended_all({0, 1}, 0, 143);
  job.pass(seconds(19));
  EXPECT_FALSE(job.over());
  job.pass(seconds(2));
  ASSERT_TRUE(job.over());
  EXPECT_EQ(job.last<Over>().exit_code, 4);
  EXPECT_THAT(job.last<Over>().failure->lines.front(), HasSubstr("missing node_rank 2"));
}

TEST(Replacements, AreNotWaitedForWhereNothingMayRestart) {
  Job job = running(fixed(3, 0));
  job.leave(2, Departure::closed);
  job.pass(milliseconds(100));
  EXPECT_FALSE(job.last<Stop>().again);
  job.ended_all({0, 1}, 0, 143);
  EXPECT_EQ(job.last<Over>().exit_code, 4);
}

TEST(Replacements, OneThatDoesNotFitIsRefusedAndTheJobWaitsOn) {
  Job job = running(fixed(2, 2));
  job.leave(1, Departure::closed);
  job.pass(milliseconds(100));
  job.say(0, Ended{0, 143});
  NodeOffer odd = offer_of(1);
  odd.must_match = {{"nnodes", "9"}, {"program", "train"}};
  EXPECT_THAT(job.join(11, odd).refused, HasSubstr("nnodes differs"));
  EXPECT_FALSE(job.over());
}

}  // namespace
}  // namespace dtrain::rendezvous
