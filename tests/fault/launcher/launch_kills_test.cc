// Random deaths: SIGKILL, SIGSEGV or exit 7 on a random rank at a random moment, among workers that end when
// told to and workers that do not. DTRAIN_FAULT_ROUNDS rounds; the seed is printed and can be given as
// DTRAIN_FAULT_SEED.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <random>

#include "tests/launch/running.h"
#include "tests/support/process.h"

namespace dtrain::test {
namespace {

using ::testing::HasSubstr;

struct Fault {
  const char* act;  // shell text that ends the worker
  int code;
  const char* says;
};

constexpr Fault kFaults[] = {
    {"kill -KILL $$", 128 + SIGKILL, "SIGKILL"},
    {"kill -SEGV $$", 128 + SIGSEGV, "SIGSEGV"},
    {"exit 7", 7, "exit code 7"},
};

// A worker notes the time of its death in milliseconds just before it, so that the launcher's reaction can be
// measured.
std::string script(int victim, int after_ms, const Fault& fault, bool stubborn) {
  const std::string wait = "sleep " + std::to_string(after_ms / 1000.0);
  return std::string(stubborn ? "trap '' TERM; " : "") +
         "sleep 300 & echo up; if [ $RANK = " + std::to_string(victim) + " ]; then " + wait +
         "; date +%s%3N; " + fault.act + "; fi; wait; sleep 300";
}

long now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

TEST(LaunchKills, RightRankAndCodeNoOrphansAllGoneInTime) {
  constexpr int kGraceMs = 200;
  const int rounds = rounds_from_environment("DTRAIN_FAULT_ROUNDS", 10);
  const int seed =
      rounds_from_environment("DTRAIN_FAULT_SEED", static_cast<int>(std::random_device{}() >> 2));
  std::mt19937 random(static_cast<unsigned>(seed));
  std::printf("seed %d, %d rounds\n", seed, rounds);
  long slowest = 0;
  for (int round = 0; round < rounds; ++round) {
    const int world = 2 + static_cast<int>(random() % 4);
    const int victim = static_cast<int>(random() % static_cast<unsigned>(world));
    const Fault& fault = kFaults[random() % 3];
    const bool stubborn = random() % 2 == 0;
    const int after_ms = static_cast<int>(random() % 300);
    SCOPED_TRACE("round " + std::to_string(round) + ": rank " + std::to_string(victim) + " of " +
                 std::to_string(world) + ", " + fault.act + (stubborn ? ", others ignore TERM" : ""));
    Running job({program("dtrain-launch"), "--nproc_per_node=" + std::to_string(world),
                 "--shutdown-timeout=" + std::to_string(kGraceMs / 1000.0), "sh", "-c",
                 script(victim, after_ms, fault, stubborn)});
    EXPECT_EQ(job.wait(), fault.code) << job.err();
    const long ended = now_ms();
    EXPECT_TRUE(job.marked().empty());
    EXPECT_THAT(job.err(), HasSubstr("rank " + std::to_string(victim) + " (host "));
    EXPECT_THAT(job.err(), HasSubstr(std::string("failed first: ")));
    EXPECT_THAT(job.err(), HasSubstr(fault.says));
    // The victim's line is the only number among "up"s.
    const std::string out = job.out();
    const std::size_t digit = out.find_first_of("0123456789");
    ASSERT_NE(digit, std::string::npos);
    const long took = ended - std::stol(out.substr(digit)) - (stubborn ? kGraceMs : 0);
    slowest = std::max(slowest, took);
    EXPECT_LT(took, 5000);
  }
  std::printf("slowest end: %ld ms after the death (plus the grace where workers ignored TERM)\n", slowest);
}

}  // namespace
}  // namespace dtrain::test
