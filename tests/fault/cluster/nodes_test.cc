// Four hosts, one fault: everybody is out soon, every surviving node names the same cause, and nothing is
// left running anywhere. Bounds here are generous (a loaded machine); what was measured is printed.
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdio>
#include <random>

#include "runtime/base/clock.h"
#include "tests/fault/cluster/job.h"

namespace dtrain::test {
namespace {

constexpr int kHosts = 4;
constexpr auto kPatience = std::chrono::seconds(60);
constexpr int kForever = 1000000;

using Milliseconds = std::chrono::milliseconds;

class Nodes : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = NetnsLab::unavailable()) GTEST_SKIP() << *why;
    lab_.emplace(kHosts);
  }

  // Starts the job on all hosts and lets it train a little.
  std::unique_ptr<LabJob> training_job(const TempDir& folder) const {
    auto job = std::make_unique<LabJob>(*lab_, folder, std::to_string(kHosts), kForever);
    for (int host = 0; host < kHosts; ++host) job->start(host);
    EXPECT_TRUE(job->reaches(5)) << job->launcher(0).err();
    return job;
  }

  // Waits until every launcher has ended and no process is left; returns how long that took, of the slowest.
  static Milliseconds wait_for_the_end(LabJob& job) {
    const TimePoint begin = steady_clock().now();
    for (int host = 0; host < kHosts; ++host)
      EXPECT_NE(job.launcher(host).wait(kPatience), -1)
          << "h" << host << " still runs: " << job.launcher(host).err();
    EXPECT_TRUE(eventually([&] { return job.processes() == 0; }, std::chrono::seconds(10))) << "orphans";
    return std::chrono::duration_cast<Milliseconds>(steady_clock().now() - begin);
  }

  // Runs `fault(job, victim)` on a fresh job again and again; on all hosts but `silent(victim)` the last
  // lines must hold `cause(victim)`.
  template <class Fault, class Cause>
  void rounds(const char* name, Milliseconds bound, bool victim_reports, Fault fault, Cause cause) {
    const int rounds = rounds_from_environment("DTRAIN_FAULT_ROUNDS", 1);
    Milliseconds worst{};
    for (int round = 0; round < rounds && !HasFailure(); ++round) {
      const TempDir folder;
      const auto job = training_job(folder);
      const int victim = 1 + static_cast<int>(random_() % (kHosts - 1));
      fault(*job, victim);
      const Milliseconds took = wait_for_the_end(*job);
      worst = std::max(worst, took);
      EXPECT_LT(took, bound);
      for (int host = 0; host < kHosts; ++host) {
        if (host == victim && !victim_reports) continue;
        EXPECT_NE(job->launcher(host).wait(), 0);
        EXPECT_NE(job->launcher(host).err().find(cause(victim)), std::string::npos)
            << "h" << host << " does not name the cause '" << cause(victim)
            << "': " << job->launcher(host).err();
      }
      for (int host = 0; host < kHosts; ++host) lab_->heal(host);
    }
    std::printf("%s: %d rounds, all out and nothing left after %ld ms at worst\n", name, rounds,
                static_cast<long>(worst.count()));
  }

  std::optional<NetnsLab> lab_;
  std::mt19937 random_{17};
};

std::string host_name(int host) { return std::string("host h").append(std::to_string(host)); }

TEST_F(Nodes, AWorkerIsKilled) {
  rounds(
      "worker killed", std::chrono::seconds(10), true,
      [](LabJob& job, int victim) {
        ASSERT_TRUE(eventually([&] { return job.workers().contains(victim); }, std::chrono::seconds(5)))
            << job.workers().size() << " of " << job.processes();
        ::kill(job.workers().at(victim), SIGKILL);
      },
      [](int victim) {
        return "rank " + std::to_string(victim) + " (node_rank " + std::to_string(victim) + ", " +
               host_name(victim);
      });
}

TEST_F(Nodes, ALauncherIsKilled) {
  rounds(
      "launcher killed", std::chrono::seconds(10), false,
      [](LabJob& job, int victim) { job.launcher(victim).signal(SIGKILL); },
      [](int victim) { return host_name(victim); });
}

// The launchers' meeting point itself.
TEST_F(Nodes, TheFirstLauncherIsKilled) {
  const TempDir folder;
  const auto job = training_job(folder);
  job->launcher(0).signal(SIGKILL);
  EXPECT_LT(wait_for_the_end(*job), std::chrono::seconds(20));
  for (int host = 1; host < kHosts; ++host) EXPECT_NE(job->launcher(host).wait(), 0);
}

TEST_F(Nodes, ANodeIsLost) {
  rounds(
      "node lost", std::chrono::seconds(30), false, [&](LabJob&, int victim) { lab_->cut(victim); },
      [](int victim) { return host_name(victim); });
}

TEST_F(Nodes, ALinkLosesWhatItSends) {
  rounds(
      "link cut, out", std::chrono::seconds(30), false,
      [&](LabJob&, int victim) { lab_->cut(victim, "out"); }, [](int victim) { return host_name(victim); });
}

TEST_F(Nodes, ALinkLosesWhatItReceives) {
  rounds(
      "link cut, in", std::chrono::seconds(30), false, [&](LabJob&, int victim) { lab_->cut(victim, "in"); },
      [](int victim) { return host_name(victim); });
}

}  // namespace
}  // namespace dtrain::test
