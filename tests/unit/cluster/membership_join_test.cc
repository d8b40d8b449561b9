// Who gets a slot, who is refused and in which words, and what is said while somebody is missing.
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

TEST(Membership, AJobFormsStartsAndEndsWell) {
  Job job(fixed(3));
  job.join(2, offer_of(2, 2));
  job.join(0, offer_of(0, 4));
  EXPECT_EQ(job.count<Forming>(), 0U);
  job.join(1, offer_of(1, 1));
  const Forming forming = job.last<Forming>();
  EXPECT_EQ(forming.round, 0);
  ASSERT_EQ(forming.nodes.size(), 3U);
  EXPECT_EQ(forming.nodes[1].host, "gpu1");
  EXPECT_EQ(forming.nodes[1].first_rank, 4);
  EXPECT_EQ(forming.nodes[2].first_rank, 5);
  EXPECT_EQ(forming.nodes[2].nproc, 2);
  job.ready_all({1, 2}, 0);
  EXPECT_EQ(job.count<Start>(), 0U);
  job.ready_all({2, 2}, 0);  // said again: not counted
  EXPECT_EQ(job.count<Start>(), 0U);
  job.ready_all({0}, 0);
  const Start start = job.last<Start>();
  EXPECT_EQ(start.master_port, 4711);
  EXPECT_EQ(start.restart_count, 0);
  EXPECT_EQ(start.run_id, "run");
  EXPECT_EQ(start.launch_time_ns, 42);
  job.pass(seconds(60));
  job.ended_all({2, 0, 0}, 0, 0);
  EXPECT_FALSE(job.over());
  job.ended_all({1}, 0, 0);
  ASSERT_TRUE(job.over());
  EXPECT_EQ(job.last<Over>().exit_code, 0);
  EXPECT_FALSE(job.last<Over>().failure);
  EXPECT_EQ(job.count<Stop>(), 0U);
}

TEST(Membership, AJobOfOneNode) {
  Job job = running(fixed(1));
  job.ended_all({0}, 0, 0);
  EXPECT_EQ(job.last<Over>().exit_code, 0);
}

TEST(Membership, WaitingNamesWhoIsMissingAndWhereWeListen) {
  JobRules rules = fixed(8);
  rules.hosts = {"gpu000", "gpu001", "gpu002", "gpu003", "gpu004", "gpu005", "gpu006", "gpu007"};
  Job job(rules);
  for (const int i : {0, 1, 2, 3, 4, 6, 7}) job.join(i);
  job.pass(milliseconds(4900));
  EXPECT_EQ(job.count<Waiting>(), 0U);
  job.pass(milliseconds(100));
  EXPECT_EQ(job.waiting_text(),
            "7/8 nodes; missing node_rank 5 (gpu005); listening on 10.0.0.0:29501 (eth0)\n");
  job.pass(seconds(10));
  EXPECT_EQ(job.count<Waiting>(), 3U);
}

TEST(Membership, ManyMissingAreListedInRanges) {
  Job job(fixed(10000));
  for (const int i : {0, 5, 6, 9}) job.join(i);
  job.pass(seconds(5));
  EXPECT_THAT(job.waiting_text(), HasSubstr("4/10000 nodes; missing node_rank 1-4, 7, 8, 10-9999;"));
  Job scattered(fixed(64));
  for (int i = 0; i < 64; i += 2) scattered.join(i);
  scattered.pass(seconds(5));
  EXPECT_THAT(scattered.waiting_text(),
              AllOf(HasSubstr("32/64"), HasSubstr("missing node_rank 1, 3, 5, 7, 9, 11, "
                                                  "13, 15, 17, 19, …;")));
}

TEST(Membership, ReportsWhoIsSlowToGetReady) {
  Job job(fixed(2));
  job.join_all(2);
  job.say(0, Ready{0, 1});
  job.pass(seconds(5));
  EXPECT_THAT(job.waiting_text(), AllOf(HasSubstr("1 of 2"), HasSubstr("node_rank 1 (host gpu1")));
}

TEST(Membership, TheJoinDeadlineSaysWhoIsMissingAndEndsAll) {
  JobRules rules = fixed(2);
  rules.join_timeout = seconds(20);
  Job job(rules);
  job.join(0);
  job.pass(milliseconds(19900));
  EXPECT_FALSE(job.over());
  job.pass(milliseconds(200));
  ASSERT_TRUE(job.over());
  EXPECT_EQ(job.last<Over>().exit_code, 4);
  EXPECT_THAT(job.last<Over>().failure->lines,
              Contains(AllOf(HasSubstr("after 20 s"), HasSubstr("node_rank 1"))));
}

TEST(Membership, ADuplicateNodeRankNamesBothAndEndsTheJob) {
  Job job(fixed(3));
  job.join(0);
  job.join(1);
  NodeOffer twin = offer_of(1);
  twin.host = "other";
  twin.address = "10.0.0.77 (eth1)";
  const Admission admission = job.join(7, twin);
  EXPECT_THAT(admission.refused, AllOf(HasSubstr("node_rank 1 is taken"), HasSubstr("gpu1, 10.0.0.1 (eth0)"),
                                       HasSubstr("other, 10.0.0.77 (eth1)")));
  ASSERT_TRUE(job.over());
  const Over over = job.last<Over>();
  EXPECT_EQ(over.exit_code, 2);
  EXPECT_EQ(over.failure->kind, Failure::Kind::unusable);
  EXPECT_EQ(over.failure->lines.front(), admission.refused);
  EXPECT_EQ(job.join(2).refused, "the job is over: " + admission.refused);
}

TEST(Membership, ANodeRankOutOfRangeIsRefused) {
  for (const int bad : {-1, 2, 1 << 30}) {
    Job job(fixed(2));
    job.join(0);
    EXPECT_THAT(job.join(9, offer_of(bad)).refused,
                AllOf(HasSubstr("node_rank " + std::to_string(bad)), HasSubstr("0 to 1")));
    EXPECT_TRUE(job.over());
  }
}

TEST(Membership, EachValueThatDiffersIsShownWithBothSides) {
  Job job(fixed(4));
  job.join(0);
  NodeOffer odd = offer_of(1);
  odd.must_match = {{"nnodes", "3"}, {"program", "train"}, {"extra", "1"}};
  EXPECT_THAT(
      job.join(1, odd).refused,
      AllOf(HasSubstr("nnodes differs: '4' on node_rank 0 (host gpu0, 10.0.0.0 (eth0)), '3' on node_rank 1"),
            HasSubstr("extra differs: nothing on node_rank 0"), Not(HasSubstr("program"))));
  EXPECT_EQ(job.last<Over>().exit_code, 2);
}

TEST(Membership, AMissingValueDiffersToo) {
  Job job(fixed(4));
  job.join(0);
  NodeOffer odd = offer_of(1);
  odd.must_match = {{"nnodes", "4"}};
  EXPECT_THAT(job.join(1, odd).refused, HasSubstr("program differs: 'train' on node_rank 0"));
}

TEST(Membership, InAnElasticJobOnlyTheOneThatDoesNotFitIsRefused) {
  Job job(elastic(2, 4));
  job.join(0);
  EXPECT_THAT(job.join(9, offer_of(0)).refused, HasSubstr("taken"));
  EXPECT_THAT(job.join(9, offer_of(4)).refused, HasSubstr("out of range"));
  NodeOffer odd = offer_of(1);
  odd.must_match[0].second = "5";
  EXPECT_THAT(job.join(9, odd).refused, HasSubstr("nnodes differs"));
  EXPECT_FALSE(job.over());
  EXPECT_THAT(job.waiting_text(), AllOf(HasSubstr("1/2 to 4 nodes"), HasSubstr("refused: nnodes differs")));
  EXPECT_EQ(job.join(1).refused, "");
}

TEST(Membership, ALauncherTooManyDoesNotDisturbARunningJob) {
  Job job = running(fixed(2));
  EXPECT_THAT(job.join(9, offer_of(1)).refused, HasSubstr("taken"));
  EXPECT_THAT(job.join(9, offer_of({})).refused, HasSubstr("full"));
  EXPECT_FALSE(job.over());
}

TEST(Membership, NodesWithoutARankGetFreeOnesAndTheFirstIsKept) {
  Job job(fixed(3));
  EXPECT_EQ(job.join(10, offer_of({})).node_rank, 1);
  EXPECT_EQ(job.join(11, offer_of({})).node_rank, 2);
  job.pass(seconds(5));
  EXPECT_THAT(job.waiting_text(), HasSubstr("2/3 nodes; 1 more may come"));
  EXPECT_EQ(job.join(0).node_rank, 0);
  EXPECT_EQ(job.last<Forming>().nodes.size(), 3U);
  Job full(fixed(3));
  full.join(10, offer_of({}));
  full.join(11, offer_of({}));
  EXPECT_THAT(full.join(12, offer_of({})).refused, HasSubstr("full"));
}

}  // namespace
}  // namespace dtrain::rendezvous
