// The coordinator's state machine: who is refused and how, rounds, one cause, leases, elastic jobs, signals.
// Time moves only when a test moves it.
#include "cluster/rendezvous/membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace dtrain::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

NodeOffer offer_of(std::optional<int> node_rank, int nproc = 2) {
  NodeOffer offer;
  offer.node_rank = node_rank;
  offer.host = node_rank ? "gpu" + std::to_string(*node_rank) : "gpux";
  offer.address = "10.0.0." + std::to_string(node_rank.value_or(99)) + " (eth0)";
  offer.nproc = nproc;
  offer.must_match = {{"nnodes", "4"}, {"program", "train"}};
  return offer;
}

// A job under test: seat `i` belongs to node_rank i unless a test says otherwise. Seats beat every 100 ms
// unless muted.
class Job {
 public:
  explicit Job(JobRules rules) : membership_(std::move(rules), now_) {}

  Admission join(SeatId id, const NodeOffer& offer) {
    Admission admission = membership_.join(id, offer, now_);
    if (admission.refused.empty()) beating_.insert(id);
    collect();
    return admission;
  }
  Admission join(int node_rank) { return join(static_cast<SeatId>(node_rank), offer_of(node_rank)); }
  void join_all(int count) {
    for (int i = 0; i < count; ++i) EXPECT_EQ(join(i).refused, "");
  }
  void say(SeatId id, const Word& word) {
    membership_.hear(id, word, now_);
    collect();
  }
  void ready_all(const std::vector<SeatId>& ids, int round) {
    for (const SeatId id : ids) say(id, Ready{round, id == 0 ? std::uint16_t{4711} : std::uint16_t{0}});
  }
  void ended_all(const std::vector<SeatId>& ids, int round, int code) {
    for (const SeatId id : ids) say(id, Ended{round, code});
  }
  void leave(SeatId id, Departure departure) {
    beating_.erase(id);
    membership_.leave(id, departure, now_);
    collect();
  }
  void mute(SeatId id) { beating_.erase(id); }
  void pass(Duration time) {
    for (const TimePoint end = now_ + time; now_ < end;) {
      now_ += std::min<Duration>(milliseconds(10), end - now_);
      for (const SeatId id : beating_) membership_.beat(id, now_);
      membership_.tick(now_);
      collect();
    }
  }
  // The coordinator is held up; then the heartbeats are read after the clock.
  void freeze(Duration time) {
    now_ += time;
    membership_.tick(now_);
    collect();
  }

  // All news of one kind so far.
  template <class Kind>
  std::vector<Kind> all() const {
    std::vector<Kind> found;
    for (const News& news : heard_) {
      if (const Kind* one = std::get_if<Kind>(&news)) found.push_back(*one);
    }
    return found;
  }
  template <class Kind>
  Kind last() const {
    const auto found = all<Kind>();
    if (!found.empty()) return found.back();
    ADD_FAILURE() << "no such news";
    return {};
  }
  template <class Kind>
  std::size_t count() const {
    return all<Kind>().size();
  }
  std::string waiting_text() const {
    std::string text;
    for (const std::string& line : last<Waiting>().lines) text += line + "\n";
    return text;
  }
  const std::vector<SeatId>& lost() const { return lost_; }
  bool over() const { return membership_.over(); }

 private:
  void collect() {
    for (News& news : membership_.take_news()) heard_.push_back(std::move(news));
    for (const SeatId id : membership_.take_lost()) lost_.push_back(id);
  }
  TimePoint now_{seconds(1000)};
  Membership membership_;
  std::set<SeatId> beating_;
  std::vector<News> heard_;
  std::vector<SeatId> lost_;
};

JobRules fixed(int nodes, int restarts = 0) {
  JobRules rules;
  rules.min_nodes = rules.max_nodes = nodes;
  rules.max_restarts = restarts;
  rules.run_id = "run";
  rules.launch_time_ns = 42;
  rules.listening = "10.0.0.0:29501 (eth0)";
  return rules;
}

JobRules elastic(int least, int most, int restarts = 3) {
  JobRules rules = fixed(most, restarts);
  rules.min_nodes = least;
  return rules;
}

Failed worker_failed(int round, int code, Duration age = {}, bool consequence = false) {
  Failed failed{round, age, {}};
  failed.cause.rank = 1;
  failed.cause.exit_code = code;
  failed.cause.consequence = consequence;
  failed.cause.lines = {"rank 1 failed"};
  return failed;
}

// A job whose round 0 runs on all nodes.
Job running(JobRules rules) {
  const int nodes = rules.max_nodes;
  Job job(std::move(rules));
  job.join_all(nodes);
  std::vector<SeatId> ids;
  for (int i = 0; i < nodes; ++i) ids.push_back(static_cast<SeatId>(i));
  job.ready_all(ids, 0);
  EXPECT_EQ(job.count<Start>(), 1U);
  return job;
}

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
  EXPECT_FALSE(job.last<Over>().cause);
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
  EXPECT_THAT(job.last<Over>().cause->lines,
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
  EXPECT_EQ(over.cause->kind, Cause::Kind::unusable);
  EXPECT_EQ(over.cause->lines.front(), admission.refused);
  EXPECT_THAT(job.join(2).refused, HasSubstr("over"));
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

TEST(Membership, AFailureStopsEverybodyOnceAndIsTheCause) {
  Job job = running(fixed(2));
  job.say(1, worker_failed(0, 7));
  EXPECT_EQ(job.count<Stop>(), 0U);
  job.pass(milliseconds(60));
  ASSERT_EQ(job.count<Stop>(), 1U);
  const Stop stop = job.last<Stop>();
  EXPECT_FALSE(stop.again);
  EXPECT_FALSE(stop.checkpoint_first);
  EXPECT_EQ(stop.cause->exit_code, 7);
  EXPECT_EQ(stop.cause->node_rank, 1);
  EXPECT_EQ(stop.cause->host, "gpu1");
  job.ended_all({0, 1}, 0, 143);
  EXPECT_EQ(job.last<Over>().exit_code, 7);
  EXPECT_EQ(job.last<Over>().cause->lines, stop.cause->lines);
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
  EXPECT_EQ(job.last<Stop>().cause->exit_code, 139);
  EXPECT_EQ(job.count<Stop>(), 1U);
}

TEST(Membership, AConsequenceWaitsForItsCauseButNotForLong) {
  Job job = running(fixed(2));
  job.say(0, worker_failed(0, 4, milliseconds(5), true));
  job.pass(milliseconds(200));
  EXPECT_EQ(job.count<Stop>(), 0U);
  job.say(1, worker_failed(0, 137));
  job.pass(milliseconds(60));
  EXPECT_EQ(job.last<Stop>().cause->exit_code, 137);

  Job alone = running(fixed(2));
  alone.say(0, worker_failed(0, 4, {}, true));
  alone.pass(milliseconds(600));
  EXPECT_EQ(alone.last<Stop>().cause->exit_code, 4);
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
  EXPECT_EQ(job.last<Over>().cause->kind, Cause::Kind::node_lost);
  EXPECT_EQ(job.last<Over>().cause->node_rank, 1);
  EXPECT_THAT(job.lost(), testing::ElementsAre(1U));
}

TEST(Membership, ANodeThatEndsWithoutSayingThatItFailedFails) {
  Job job = running(fixed(2));
  job.say(1, Ended{0, 9});
  job.pass(milliseconds(60));
  EXPECT_EQ(job.last<Stop>().cause->exit_code, 9);
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

TEST(Membership, AKilledLauncherEndsAFixedJobAtOnce) {
  Job job = running(fixed(3, 5));
  job.leave(2, Departure::closed);
  job.say(1, worker_failed(0, 1, milliseconds(20)));  // a peer without words of its own
  job.pass(milliseconds(60));
  const Stop stop = job.last<Stop>();
  EXPECT_EQ(stop.cause->kind, Cause::Kind::launcher_lost);
  EXPECT_EQ(stop.cause->host, "gpu2");
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
  EXPECT_EQ(job.last<Stop>().cause->kind, Cause::Kind::node_lost);
  EXPECT_THAT(job.last<Stop>().cause->lines, Contains(HasSubstr("node_rank 1 (host gpu1")));
}

TEST(Membership, ASilentNodeIsLostNotBefore6Seconds) {
  Job job = running(fixed(2));
  job.mute(1);
  job.pass(milliseconds(5800));
  EXPECT_THAT(job.lost(), IsEmpty());
  job.pass(milliseconds(700));
  EXPECT_THAT(job.lost(), testing::ElementsAre(1U));
  EXPECT_EQ(job.last<Stop>().cause->kind, Cause::Kind::node_lost);
  job.say(1, Ended{0, 0});  // too late, ignored
  job.say(0, Ended{0, 137});
  EXPECT_EQ(job.last<Over>().cause->node_rank, 1);
}

TEST(Membership, ACoordinatorThatWasHeldUpReadsTheHeartbeatsFirst) {
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
  EXPECT_EQ(job.last<Over>().cause->kind, Cause::Kind::launcher_lost);

  Job forming(fixed(2));
  forming.join_all(2);
  forming.leave(1, Departure::broken);
  EXPECT_EQ(forming.last<Over>().cause->kind, Cause::Kind::node_lost);
}

TEST(Membership, ANodeThatCannotStartItsPartEndsTheJob) {
  Job job(fixed(2, 3));
  job.join_all(2);
  Failed failed = worker_failed(0, 127);
  failed.cause.kind = Cause::Kind::unusable;
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
  asked.cause.kind = Cause::Kind::requeue;
  job.say(0, asked);
  job.say(0, Ended{0, 75});
  job.pass(seconds(5));
  EXPECT_EQ(job.count<Stop>(), 0U);  // the others write their checkpoint
  job.say(1, Ended{0, 75});
  EXPECT_EQ(job.last<Over>().exit_code, 75);
  EXPECT_EQ(job.last<Over>().cause->kind, Cause::Kind::requeue);

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
  EXPECT_EQ(job.last<Over>().cause->kind, Cause::Kind::signal);
}

TEST(Membership, ASignalledJobThatWroteItsCheckpointAsksToBeRequeued) {
  Job job = running(fixed(2));
  job.say(0, Signalled{12});
  job.ended_all({0, 1}, 0, 75);
  EXPECT_EQ(job.last<Over>().exit_code, 75);
  EXPECT_EQ(job.last<Over>().cause->exit_code, 75);

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
  EXPECT_EQ(job.last<Stop>().cause->node_rank, 2);
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
  EXPECT_FALSE(stop.cause);
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
  EXPECT_EQ(job.last<Over>().cause->node_rank, 1);
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
  Job job = running(elastic(1, 3));
  job.leave(2, Departure::closed);
  job.pass(milliseconds(60));
  job.ended_all({0, 1}, 0, 143);
  job.ready_all({0, 1}, 1);
  job.join(22, offer_of(2));
  job.ended_all({0, 1}, 1, 0);
  EXPECT_EQ(job.last<Over>().exit_code, 0);
}

TEST(Membership, AWaitingNewcomerMayLeave) {
  Job job = running(elastic(1, 3));
  job.leave(2, Departure::closed);
  job.pass(milliseconds(60));
  job.ended_all({0, 1}, 0, 143);
  job.ready_all({0, 1}, 1);
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

}  // namespace
}  // namespace dtrain::rendezvous
