// Everything on a node stands still for some seconds, as on a machine that is migrated or swaps, or ends at
// once: the first costs a job nothing, the second is not waited for where nobody continues without the node.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <thread>

#include "tests/launch/nodes.h"

namespace dtrain::test {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

void signal_all(const Running& launcher, int number) {
  launcher.signal(number);
  for (const pid_t pid : launcher.marked()) ::kill(pid, number);
}

// Stopped, or in the kernel until what it waits for happens, and then stopped: a shell waits there for a
// child that was stopped between vfork() and exec().
bool stands_still(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(stat, text);
  const std::size_t end = text.rfind(')');
  return end == std::string::npos || text.compare(end, 3, ") T") == 0 || text.compare(end, 3, ") D") == 0;
}

// Those above a process that is stopped let it run on, until they are stopped themselves.
bool stop_all(const Running& launcher) {
  return eventually([&] {
    signal_all(launcher, SIGSTOP);
    const auto pids = launcher.marked();
    return stands_still(launcher.pid()) && std::all_of(pids.begin(), pids.end(), stands_still);
  });
}

// The youngest first, so that none is killed while a stopped child of it lives: the kernel sends SIGCONT to a
// process group that loses its last parent outside it, and the launcher's helper would wake and say that its
// launcher is lost before it is killed itself.
void kill_all(const Running& launcher) {
  auto pids = launcher.marked();
  std::sort(pids.begin(), pids.end(), std::greater<>());
  for (const pid_t pid : pids) ::kill(pid, SIGKILL);
  launcher.signal(SIGKILL);
}

class NodesStall : public ::testing::TestWithParam<int> {};

TEST_P(NodesStall, SixSecondsCostAJobNothing) {
  const TempDir folder;
  Nodes nodes(2,
              {"--nproc_per_node=2", "sh", "-c", "echo up; until [ -e $GO ]; do sleep 0.05; done; echo done"},
              "", {{"GO", folder / "go"}});
  ASSERT_TRUE(eventually([&] { return nodes.lines() == 4; })) << nodes.errors();
  ASSERT_TRUE(stop_all(nodes[GetParam()]));
  std::this_thread::sleep_for(std::chrono::milliseconds(6500));
  signal_all(nodes[GetParam()], SIGCONT);
  write_file(folder / "go", "");
  for (int node : {0, 1}) EXPECT_EQ(nodes[node].wait(), 0) << nodes.errors();
  EXPECT_EQ(nodes.lines(), 8) << nodes.errors();
}

// The kernel closes the connections of processes that are gone.
TEST_P(NodesStall, TheEndOfANodeEndsAJobThatCannotGoOnBeforeTheLeaseDoes) {
  constexpr seconds kLease{24};
  Nodes nodes(2, {"--lease-timeout=" + std::to_string(kLease.count()), "--nproc_per_node=2", "sh", "-c",
                  "echo up; exec sleep 300"});
  ASSERT_TRUE(eventually([&] { return nodes.lines() == 4; })) << nodes.errors();
  ASSERT_TRUE(stop_all(nodes[GetParam()]));
  const auto killed = std::chrono::steady_clock::now();
  kill_all(nodes[GetParam()]);
  Running& other = nodes[1 - GetParam()];
  EXPECT_EQ(other.wait(kLease - seconds(2)), 4) << nodes.errors();
  std::printf("known after %.1f s\n",
              std::chrono::duration<double>(std::chrono::steady_clock::now() - killed).count());
  EXPECT_THAT(other.err(), HasSubstr("closed the connection"));
  EXPECT_TRUE(eventually([&] { return other.marked().empty(); }));
}

INSTANTIATE_TEST_SUITE_P(OfEither, NodesStall, ::testing::Values(0, 1));

}  // namespace
}  // namespace dtrain::test
