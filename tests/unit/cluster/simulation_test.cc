// Leaders that are lost, cut off, stopped and elected, thousands of times in virtual time: what decision 029
// promises holds whatever the order in which messages arrive. DTRAIN_FAULT_ROUNDS is the number of runs,
// DTRAIN_FAULT_SEED the first one's seed; a failure names the seed that repeats it.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>

#include "cluster/rendezvous/messages.h"
#include "tests/unit/cluster/simulated_job.h"

namespace dtrain::simulation {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

unsigned number_from(const char* variable, unsigned otherwise) {
  const char* value = std::getenv(variable);
  return value == nullptr ? otherwise : static_cast<unsigned>(std::strtoul(value, nullptr, 10));
}

Settings settings_of(unsigned seed) {
  std::mt19937 random(seed);
  Settings settings;
  settings.nodes = 2 + static_cast<int>(random() % 4);
  settings.spares = static_cast<int>(random() % 3);
  settings.slowest_message =
      std::array<Duration, 3>{milliseconds(2), milliseconds(60), milliseconds(240)}[random() % 3];
  settings.between_faults = std::array<Duration, 3>{seconds(3), seconds(8), seconds(20)}[random() % 3];
  return settings;
}

TEST(Simulation, WhateverIsLostNobodyStartsARoundThatOthersDoNotKnow) {
  const unsigned runs = number_from("DTRAIN_FAULT_ROUNDS", 150), first = number_from("DTRAIN_FAULT_SEED", 1);
  std::size_t rounds = 0, elections = 0, beside = 0;
  for (unsigned seed = first; seed < first + runs; ++seed) {
    SimulatedJob job(seed, settings_of(seed));
    job.run(minutes(3), minutes(15));
    ASSERT_EQ(job.violation(), "") << "DTRAIN_FAULT_SEED=" << seed << "\n" << job.text();
    ASSERT_TRUE(job.complete()) << "DTRAIN_FAULT_SEED=" << seed << " does not continue\n" << job.text();
    rounds += job.rounds();
    elections += job.elections();
    beside += job.beside_others();
  }
  std::printf("%u runs, %zu rounds, %zu elections, %zu began beside another job\n", runs, rounds, elections,
              beside);
  EXPECT_GT(rounds, runs);
  EXPECT_GT(elections, runs / 4);
}

/// Of a store that nobody listens to.
class Silence final : public StoreControl {
 public:
  void publish(const std::string&, std::string) override {}
  void forget(const std::string&) override {}
  void expel(std::uint64_t) override {}
};

// All launchers of a large job come to the new leader at once, and it looks after its voters meanwhile.
TEST(Succession, TheLaunchersOfAVeryLargeJobClaimTheirSlotsInSeconds) {
  using namespace rendezvous;
  constexpr int kNodes = 100'000;
  Timeline time;
  Leadership leadership({1, "host0", seconds(4), {}, {}});
  ServerOptions options;
  options.leadership = &leadership;
  options.rules.min_nodes = options.rules.max_nodes = kNodes;
  options.rules.max_restarts = 3;
  ServerObserver observer(options, {"host0", 1}, true, time, time);
  Succession succession;
  succession.election = {
      2, seconds(1), {{1, "host0", {"host0", 1}}, {2, "host1", {"host1", 1}}, {3, "host2", {"host2", 1}}}};
  succession.known.round = 0;
  for (int node = 0; node < kNodes; ++node)
    succession.known.nodes.push_back({node, "host" + std::to_string(node), 1, node});
  observer.lead(succession);
  Silence store;
  observer.on_turn(store, time.now());
  const TimePoint begin = steady_clock().now();
  int admitted = 0;
  for (int node = 0; node < kNodes; ++node) {
    time.run_until(time.now() + milliseconds(1), [] { return false; });
    const auto client = static_cast<std::uint64_t>(node);
    NodeOffer offer;
    offer.node_rank = offer.place = node;
    offer.host = "host" + std::to_string(node);
    offer.instance_id = client + 1;
    offer.resumes = offer.at_work = true;
    offer.standby = {offer.host, 1};
    offer.term = 1;
    offer.round = 0;
    const std::string answer = observer.on_set(store, client, kJoinKey, encode(offer));
    const auto admission = decode_admission(std::string_view(answer).substr(8));
    admitted += admission && admission->refused.empty() && admission->node_rank == node ? 1 : 0;
    // The voters follow.
    for (std::uint64_t one = 0; one < 3; ++one) {
      const Ack ack{2, time.now().time_since_epoch().count(), observer.state().next_event()};
      observer.on_set(store, one, kBeatKey, encode(ack));
    }
  }
  const double took = std::chrono::duration<double>(steady_clock().now() - begin).count();
  std::printf("%d claims in %.2f s\n", kNodes, took);
  EXPECT_EQ(admitted, kNodes);
  EXPECT_EQ(leadership.voters()->members().size(), kMostVoters);
  EXPECT_LT(took, 60) << "three seconds by itself; ten minutes where each one looks at all others";
}

}  // namespace
}  // namespace dtrain::simulation
