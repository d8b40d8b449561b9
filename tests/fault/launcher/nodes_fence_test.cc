// Launcher, node agent and subreaper of a node are stopped or killed, in any combination: its workers end
// when the lease does, before anybody continues without the node, and every launcher that can still act ends
// in time. DTRAIN_FAULT_ROUNDS=50 for the long run; DTRAIN_FAULT_SEED repeats one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <optional>
#include <random>
#include <thread>

#include "tests/fault/launcher/blocked.h"
#include "tests/launch/nodes.h"

namespace dtrain::test {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

// Shorter than without the option, since every test waits for it.
const std::string kLease = "--lease-timeout=4";
// The lease, what follows from it, and a slow machine.
constexpr seconds kInTime{19};

std::size_t workers_of(const Running& launcher) {
  std::size_t workers = 0;
  for (const pid_t pid : launcher.marked()) {
    std::error_code error;
    const auto path = std::filesystem::read_symlink("/proc/" + std::to_string(pid) + "/exe", error);
    workers += path.filename() == "sleep";
  }
  return workers;
}

struct TwoNodes {
  Nodes nodes{2, {kLease, "--nproc_per_node=2", "sh", "-c", "echo up; exec sleep 300"}};

  bool started() {
    return eventually([&] { return nodes.lines() == 4; });
  }
  // 0: launcher, 1: node agent, 2: subreaper; of the second node.
  pid_t process(int part) {
    return part == 0 ? nodes[1].pid() : part == 1 ? nodes[1].child("dtrain-agent") : nodes[1].subreaper();
  }
};

constexpr const char* kParts[] = {"launcher", "node agent", "subreaper"};

class NodesFence : public ::testing::Test {
 protected:
  // What is done to each of the three: 0 nothing, else the signal.
  void disturb(const std::array<int, 3>& acts) {
    std::string what;
    for (int part = 0; part < 3; ++part) {
      if (acts[static_cast<std::size_t>(part)] != 0)
        what += std::string(kParts[part]) +
                (acts[static_cast<std::size_t>(part)] == SIGKILL ? " killed " : " stopped ");
    }
    SCOPED_TRACE(what);
    TwoNodes job;
    ASSERT_TRUE(job.started()) << job.nodes.errors();
    std::array<pid_t, 3> pids{};
    for (int part = 0; part < 3; ++part) pids[static_cast<std::size_t>(part)] = job.process(part);
    for (std::size_t part = 0; part < 3; ++part) {
      ASSERT_GT(pids[part], 0) << kParts[part];  // 0 would be ourselves
      if (acts[part] != 0) ::kill(pids[part], acts[part]);
    }
    const auto begin = std::chrono::steady_clock::now();
    // A launcher that stands still is not needed while all is well, a node agent or subreaper that was
    // stopped is let run on by the process above it: then nothing is wrong yet, and the subreaper is killed.
    const bool fence_needed = acts[0] == SIGKILL || acts[1] == SIGKILL || acts[2] == SIGKILL ||
                              (acts[0] == SIGSTOP && acts[1] != 0);
    if (!fence_needed) ::kill(pids[2], SIGKILL);
    EXPECT_TRUE(eventually([&] { return workers_of(job.nodes[1]) == 0; }, kInTime)) << job.nodes.errors();
    EXPECT_GT(job.nodes[0].wait(kInTime), 0) << job.nodes.errors();
    if (acts[0] == 0) {
      EXPECT_GT(job.nodes[1].wait(kInTime), 0) << job.nodes.errors();
    }
    slowest_ = std::max(slowest_, std::chrono::steady_clock::now() - begin);
  }
  void TearDown() override {
    std::printf("slowest: %.1f s\n", std::chrono::duration<double>(slowest_).count());
  }
  std::chrono::steady_clock::duration slowest_{};
};

TEST_F(NodesFence, AllThreeStopped) { disturb({SIGSTOP, SIGSTOP, SIGSTOP}); }
TEST_F(NodesFence, LauncherAndLinkStopped) { disturb({SIGSTOP, SIGSTOP, 0}); }
TEST_F(NodesFence, TheLauncherStoppedAndTheLinkKilled) { disturb({SIGSTOP, SIGKILL, 0}); }
TEST_F(NodesFence, TheLauncherKilledAndTheSubreaperStopped) { disturb({SIGKILL, 0, SIGSTOP}); }

// None of them takes SIGCONT or SIGTERM: the guard alone is left, and nothing but the lease's end wakes it.
TEST_F(NodesFence, AllThreeBlocked) {
  if (const auto why = Blocked::unavailable()) GTEST_SKIP() << *why;
  TwoNodes job;
  ASSERT_TRUE(job.started()) << job.nodes.errors();
  std::array<std::optional<Blocked>, 3> blocked;
  for (int part = 0; part < 3; ++part) {
    const pid_t pid = job.process(part);
    ASSERT_GT(pid, 0) << kParts[part];
    blocked[static_cast<std::size_t>(part)].emplace(pid);
  }
  EXPECT_TRUE(eventually([&] { return workers_of(job.nodes[1]) == 0; }, kInTime)) << job.nodes.errors();
  EXPECT_GT(job.nodes[0].wait(kInTime), 0) << job.nodes.errors();
}

// The launcher hears nothing of its node agent, and does not wait for it at the end.
TEST_F(NodesFence, TheLinkBlocked) {
  if (const auto why = Blocked::unavailable()) GTEST_SKIP() << *why;
  TwoNodes job;
  ASSERT_TRUE(job.started()) << job.nodes.errors();
  const Blocked blocked(job.process(1));
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(eventually([&] { return workers_of(job.nodes[1]) == 0; }, kInTime)) << job.nodes.errors();
  for (int node : {0, 1}) EXPECT_EQ(job.nodes[node].wait(kInTime), 4) << job.nodes.errors();
  slowest_ = std::chrono::steady_clock::now() - begin;
}

TEST_F(NodesFence, AnyCombination) {
  const int rounds = rounds_from_environment("DTRAIN_FAULT_ROUNDS", 2);
  const int seed =
      rounds_from_environment("DTRAIN_FAULT_SEED", static_cast<int>(std::random_device{}() >> 2));
  std::printf("seed %d, %d rounds\n", seed, rounds);
  std::mt19937 random(static_cast<unsigned>(seed));
  for (int round = 0; round < rounds && !HasFailure(); ++round) {
    constexpr int kActs[] = {0, SIGSTOP, SIGKILL};
    std::array<int, 3> acts{};
    while (acts == std::array{0, 0, 0})
      std::generate(acts.begin(), acts.end(), [&] { return kActs[random() % 3]; });
    disturb(acts);
  }
}

TEST(NodesStoppedParts, OfLinkAndSubreaperRunOn) {
  const TempDir folder;
  Nodes nodes(2, {kLease, "--nproc_per_node=1", "sh", "-c", "echo up; until [ -e $GO ]; do sleep 0.05; done"},
              "", {{"GO", folder / "go"}});
  ASSERT_TRUE(eventually([&] { return nodes.lines() == 2; })) << nodes.errors();
  for (int node : {0, 1}) {
    ::kill(nodes[node].child("dtrain-agent"), SIGSTOP);
    ::kill(nodes[node].subreaper(), SIGSTOP);
    ::kill(nodes[node].guard(), SIGSTOP);
  }
  std::this_thread::sleep_for(seconds(5));  // longer than the lease
  write_file(folder / "go", "");
  for (int node : {0, 1}) EXPECT_EQ(nodes[node].wait(), 0) << nodes.errors();
}

TEST(NodesStuckLauncher, IsLeftBehindWhenTheJobIsDone) {
  const TempDir folder;
  Nodes nodes(2, {kLease, "--nproc_per_node=1", "sh", "-c", "echo up; until [ -e $GO ]; do sleep 0.05; done"},
              "", {{"GO", folder / "go"}});
  ASSERT_TRUE(eventually([&] { return nodes.lines() == 2; })) << nodes.errors();
  nodes[1].signal(SIGSTOP);
  write_file(folder / "go", "");
  EXPECT_EQ(nodes[0].wait(seconds(25)), 4) << "nobody knows how it ended there: " << nodes.errors();
}

TEST(NodesStuckLauncher, IsLeftBehindWhenAnotherNodeFails) {
  const TempDir folder;
  Nodes nodes(
      2,
      {kLease, "--nproc_per_node=1", "sh", "-c",
       "echo up; [ $RANK = 0 ] && { until [ -e $GO ]; do sleep 0.05; done; exit 7; }; exec sleep 300"},
      "", {{"GO", folder / "go"}});
  ASSERT_TRUE(eventually([&] { return nodes.lines() == 2; })) << nodes.errors();
  nodes[1].signal(SIGSTOP);
  write_file(folder / "go", "");
  EXPECT_EQ(nodes[0].wait(kInTime), 7) << nodes.errors();
  EXPECT_EQ(workers_of(nodes[1]), 0U) << "it must not work on beside others";
  nodes[1].signal(SIGCONT);
  EXPECT_EQ(nodes[1].wait(), 4) << nodes.errors();
  EXPECT_THAT(nodes[1].err(), HasSubstr("stopped or stuck"));
}

}  // namespace
}  // namespace dtrain::test
