// kill -9 of anything on any of three nodes, at any moment: every launcher ends with the same report and
// code, and nothing is left anywhere. Short by default; DTRAIN_FAULT_ROUNDS=100 for the long run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <random>
#include <thread>

#include "tests/launch/nodes.h"

namespace dtrain::test {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

constexpr int kNodes = 3;

class NodesKills : public ::testing::Test {
 protected:
  // A job that would run for a minute, killed somewhere soon after its start (or in it).
  struct Victim {
    Nodes nodes{kNodes, {"--nproc_per_node=2", "sh", "-c", "echo $RANK $$; exec sleep 60"}};
    int node = 0;
  };

  int rounds_ = rounds_from_environment("DTRAIN_FAULT_ROUNDS", 3);
  std::mt19937 random_{static_cast<unsigned>(std::chrono::steady_clock::now().time_since_epoch().count())};

  int any_node() { return static_cast<int>(random_() % kNodes); }
  void wait_a_moment() { std::this_thread::sleep_for(std::chrono::milliseconds(random_() % 30)); }

  static pid_t worker_of(Nodes& nodes, int node) {
    const std::string out = nodes[node].out();
    const std::size_t blank = out.find(' ');
    return blank == std::string::npos ? 0 : std::stoi(out.substr(blank + 1));
  }

  // All launchers but `gone` end with one code and the same words, soon, and leave nothing.
  void expect_one_end(Nodes& nodes, int gone, int code, const std::string& says, int round) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kNodes; ++i) {
      if (i == gone) continue;
      EXPECT_EQ(nodes[i].wait(), code) << "round " << round << " launcher " << i << "\n" << nodes.errors();
      EXPECT_THAT(nodes[i].err(), ContainsRegex(says)) << "round " << round << "\n" << nodes.errors();
    }
    EXPECT_TRUE(eventually([&] { return nodes.marked() == 0; })) << "round " << round;
    slowest_ = std::max(slowest_, std::chrono::steady_clock::now() - start);
  }

  void TearDown() override {
    RecordProperty("slowest_ms", static_cast<int>(slowest_ / std::chrono::milliseconds(1)));
    std::printf("slowest end of all: %.3f s in %d rounds\n", std::chrono::duration<double>(slowest_).count(),
                rounds_);
    EXPECT_LT(slowest_, std::chrono::seconds(15));
  }

  std::chrono::steady_clock::duration slowest_{};
};

TEST_F(NodesKills, Worker) {
  for (int round = 0; round < rounds_; ++round) {
    Victim job;
    ASSERT_TRUE(eventually([&] { return job.nodes.lines() == 2 * kNodes; })) << job.nodes.errors();
    job.node = any_node();
    wait_a_moment();
    ::kill(worker_of(job.nodes, job.node), SIGKILL);
    expect_one_end(
        job.nodes, -1, 128 + SIGKILL,
        "rank [0-9]+ \\(node_rank " + std::to_string(job.node) + ", .* failed first: killed by SIGKILL",
        round);
  }
}

TEST_F(NodesKills, Launcher) {
  for (int round = 0; round < rounds_; ++round) {
    Victim job;
    ASSERT_TRUE(eventually([&] { return job.nodes.lines() == 2 * kNodes; })) << job.nodes.errors();
    job.node = any_node();
    wait_a_moment();
    job.nodes[job.node].signal(SIGKILL);
    expect_one_end(job.nodes, job.node, 4, "node_rank " + std::to_string(job.node) + " .*launcher was killed",
                   round);
  }
}

TEST_F(NodesKills, LauncherWhileNodesMeet) {
  for (int round = 0; round < rounds_; ++round) {
    Victim job;
    job.node = any_node();
    ASSERT_TRUE(eventually([&] { return job.nodes[job.node].child("dtrain-agent") > 0; }));
    wait_a_moment();
    job.nodes[job.node].signal(SIGKILL);
    // It may not have joined yet: then the others wait for it, and are told to end.
    for (int i = 0; i < kNodes; ++i) {
      if (i != job.node && job.nodes[i].wait(std::chrono::seconds(2)) == -1) job.nodes[i].signal(SIGTERM);
    }
    for (int i = 0; i < kNodes; ++i) {
      if (i == job.node) continue;
      EXPECT_NE(job.nodes[i].wait(), -1) << "round " << round << "\n" << job.nodes.errors();
    }
    EXPECT_TRUE(eventually([&] { return job.nodes.marked() == 0; })) << "round " << round;
  }
}

TEST_F(NodesKills, Subreaper) {
  for (int round = 0; round < rounds_; ++round) {
    Victim job;
    ASSERT_TRUE(eventually([&] { return job.nodes.lines() == 2 * kNodes; })) << job.nodes.errors();
    job.node = any_node();
    wait_a_moment();
    ::kill(job.nodes[job.node].subreaper(), SIGKILL);
    for (int i = 0; i < kNodes; ++i) EXPECT_GT(job.nodes[i].wait(), 0) << job.nodes.errors();
    EXPECT_TRUE(eventually([&] { return job.nodes.marked() == 0; })) << "round " << round;
  }
}

// A part of its launcher, which ends with it.
TEST_F(NodesKills, NodeAgent) {
  for (int round = 0; round < rounds_; ++round) {
    Victim job;
    ASSERT_TRUE(eventually([&] { return job.nodes.lines() == 2 * kNodes; })) << job.nodes.errors();
    job.node = any_node();
    const pid_t agent = job.nodes[job.node].child("dtrain-agent");
    ASSERT_GT(agent, 0);  // 0 would be ourselves
    wait_a_moment();
    ::kill(agent, SIGKILL);
    EXPECT_EQ(job.nodes[job.node].wait(), 4) << job.nodes.errors();
    EXPECT_THAT(job.nodes[job.node].err(), HasSubstr("was killed by SIGKILL"));
    EXPECT_TRUE(eventually([&] { return job.nodes[job.node].marked().empty(); }))
        << "workers without a node agent";
    expect_one_end(job.nodes, job.node, 4,
                   "node_rank " + std::to_string(job.node) + " |lost contact with the others", round);
  }
}

TEST_F(NodesKills, LauncherAndLink) {
  for (int round = 0; round < rounds_; ++round) {
    Victim job;
    ASSERT_TRUE(eventually([&] { return job.nodes.lines() == 2 * kNodes; })) << job.nodes.errors();
    job.node = any_node();
    wait_a_moment();
    const pid_t agent = job.nodes[job.node].child("dtrain-agent");
    job.nodes[job.node].signal(SIGSTOP);
    ::kill(agent, SIGKILL);
    job.nodes[job.node].signal(SIGKILL);
    expect_one_end(job.nodes, job.node, 4,
                   "node_rank " + std::to_string(job.node) + " |lost contact with the others", round);
  }
}

}  // namespace
}  // namespace dtrain::test
