// Leaders that are lost, cut off, stopped and elected, thousands of times in virtual time: what decision 029
// promises holds whatever the order in which messages arrive. DTRAIN_FAULT_ROUNDS is the number of runs,
// DTRAIN_FAULT_SEED the first one's seed; a failure names the seed that repeats it.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>

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
  std::size_t rounds = 0, elections = 0, complete = 0;
  for (unsigned seed = first; seed < first + runs; ++seed) {
    SimulatedJob job(seed, settings_of(seed));
    job.run(minutes(3), minutes(15));
    ASSERT_EQ(job.violation(), "") << "DTRAIN_FAULT_SEED=" << seed << "\n" << job.text();
    complete += job.complete() ? 1 : 0;
    if (!job.complete()) std::printf("DTRAIN_FAULT_SEED=%u does not go on\n", seed);
    rounds += job.rounds();
    elections += job.elections();
  }
  std::printf("%u runs, %zu rounds, %zu elections, %zu went on\n", runs, rounds, elections, complete);
  EXPECT_GT(rounds, runs);
  EXPECT_GT(elections, runs / 4);
  // Now and then all are lost who could have gone on.
  EXPECT_GE(complete, runs - runs / 20);
}

}  // namespace
}  // namespace dtrain::simulation
