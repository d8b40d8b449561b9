// Jobs end, and nothing outlives them, also where the kernel refuses descriptors of processes, and where
// /proc shows the processes of another PID namespace.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "tests/launch/nodes.h"
#include "tests/launch/running.h"
#include "tests/support/process.h"
#include "tests/support/temp_dir.h"

namespace dtrain::test {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

// A worker with children in its group, in another session, and orphaned there; deaf to SIGTERM.
constexpr const char* kFamily =
    "trap '' TERM; sleep 300 & setsid sleep 300 & (setsid sleep 300 &); echo up; sleep 300; sleep 300";

// Empty for one that has ended.
std::string name_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/comm");
  std::string name;
  std::getline(file, name);
  return name;
}

// Of the whole machine's, those that carry the job's mark and have that name.
std::size_t alive(const Running& job, const std::string& name) {
  const std::vector<pid_t> all = job.marked();
  return static_cast<std::size_t>(
      std::count_if(all.begin(), all.end(), [&](pid_t pid) { return name_of(pid) == name; }));
}

void write_script(const std::string& path, const std::string& command) {
  std::ofstream(path) << "#!/bin/sh\n" << command << "\n";
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
}

class WithoutPidfds : public ::testing::Test {
 protected:
  void SetUp() override {
    if (run({DTRAIN_WITHOUT_PIDFDS, "/bin/true"}).exit_code == 77)
      GTEST_SKIP() << "skipped: this kernel takes no seccomp filter";
  }
  static std::vector<std::string> command(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {DTRAIN_WITHOUT_PIDFDS, program("dtrain-launch")});
    return arguments;
  }
};

TEST_F(WithoutPidfds, ASignalEndsAllAndTheReasonIsSaidOnce) {
  Running job(command({"--shutdown-timeout=0.3", "--nproc_per_node=2", "sh", "-c", kFamily}));
  ASSERT_TRUE(eventually([&] { return alive(job, "sleep") >= 8; })) << job.err();
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait(), 128 + SIGTERM) << job.err();
  EXPECT_EQ(job.marked().size(), 0U) << job.err();
  const std::string said = "pidfd_open is refused here (Operation not permitted";
  EXPECT_THAT(job.err(), HasSubstr(said));
  EXPECT_EQ(job.err().find(said), job.err().rfind(said));
  EXPECT_THAT(job.err(), Not(HasSubstr("does not end")));
}

TEST_F(WithoutPidfds, NothingOutlivesAKilledLauncherOrSubreaper) {
  for (const bool subreaper : {false, true}) {
    Running job(command({"--nproc_per_node=2", "sh", "-c", kFamily}));
    ASSERT_TRUE(eventually([&] { return alive(job, "sleep") >= 8 && job.subreaper() > 0; })) << job.err();
    ::kill(subreaper ? job.subreaper() : job.pid(), SIGKILL);
    EXPECT_TRUE(eventually([&] { return job.marked().empty(); })) << job.err();
  }
}

// Workers are ended by the subreaper when the lease is over, whatever launcher and node agent do.
TEST_F(WithoutPidfds, TheLeasesEndEndsAllOfAStoppedNode) {
  const TempDir folder;
  write_script(folder / "launch",
               std::string("exec ") + DTRAIN_WITHOUT_PIDFDS + " " + program("dtrain-launch") + " \"$@\"");
  Nodes nodes(0, {});
  for (const int node : {0, 1})
    nodes.add(node, {"--lease-timeout=4", "--nproc_per_node=2", "sh", "-c", kFamily}, "2", {},
              folder / "launch");
  ASSERT_TRUE(eventually([&] { return alive(nodes[0], "sleep") >= 8 && alive(nodes[1], "sleep") >= 8; }))
      << nodes.errors();
  const pid_t agent = nodes[1].child("dtrain-agent");
  ASSERT_GT(agent, 0);
  for (const pid_t pid : {nodes[1].pid(), agent}) ::kill(pid, SIGSTOP);
  EXPECT_TRUE(eventually([&] { return alive(nodes[1], "sleep") == 0; })) << nodes.errors();
  EXPECT_GT(nodes[0].wait(), 0) << nodes.errors();
  EXPECT_EQ(alive(nodes[0], "sleep"), 0U);
}

// The shell is process 1 there: were the launcher that, its end would end everything.
class OuterProc : public ::testing::Test {
 protected:
  void SetUp() override {
    if (run({"/usr/bin/unshare", "--pid", "--fork", "true"}).exit_code != 0)
      GTEST_SKIP() << "skipped: no process namespace can be made here (needs root)";
  }
  static std::vector<std::string> command(const std::string& options, const std::string& worker) {
    return {"/usr/bin/unshare",
            "--pid",
            "--fork",
            "/bin/sh",
            "-c",
            "\"$0\" " + options + " sh -c \"$1\"; echo ended $?; read word < \"$2\"",
            program("dtrain-launch"),
            worker};
  }
};

TEST_F(OuterProc, WhatWorkersLeftInOtherSessionsEndsWithTheJob) {
  const TempDir folder;
  const std::string go = folder / "go";
  ASSERT_EQ(run({"mkfifo", go}).exit_code, 0);
  auto argv = command("", "setsid sleep 300 & (setsid sleep 300 &); exit 3");
  argv.push_back(go);
  Running job(argv);
  ASSERT_TRUE(eventually([&] { return job.out() == "ended 3\n"; })) << job.out() << job.err();
  EXPECT_EQ(alive(job, "sleep"), 0U) << job.err();
}

TEST_F(OuterProc, WorkersThatAreDeafAreKilledAfterANeighboursFailure) {
  const TempDir folder;
  const std::string go = folder / "go";
  ASSERT_EQ(run({"mkfifo", go}).exit_code, 0);
  auto argv = command("--nproc_per_node=2 --shutdown-timeout=0.3",
                      std::string("[ $RANK = 0 ] && { sleep 1; exit 5; }; ") + kFamily);
  argv.push_back(go);
  Running job(argv);
  ASSERT_TRUE(eventually([&] { return job.out() == "up\nended 5\n"; })) << job.out() << job.err();
  EXPECT_EQ(alive(job, "sleep"), 0U) << job.err();
}

// Numbers of the outer namespace are strangers' here: idle kernel threads, most of them.
TEST_F(OuterProc, AWorkerThatHangsIsToldFromOneThatComputes) {
  Running job(command("--nproc_per_node=2 --hang-timeout=1 --on-hang=stacks",
                      "[ $RANK = 1 ] || exec sleep 300; while :; do :; done"));
  ASSERT_TRUE(eventually([&] { return job.err().find("rank 1 (pid") != std::string::npos; })) << job.err();
  EXPECT_THAT(job.err(), HasSubstr("hang: rank 0 has made no progress"));
  EXPECT_THAT(job.err(), ContainsRegex("rank 0 \\(pid [0-9]+\\): idle .*sleeping in clock_nanosleep"));
  EXPECT_THAT(job.err(), ContainsRegex("rank 1 \\(pid [0-9]+\\): running"));
  EXPECT_TRUE(eventually([&] { return job.err().find("outer PID namespace") != std::string::npos; }))
      << job.err();
}

// Nobody could look into processes there; what is in the workers' groups is ended all the same.
TEST(NoProc, IsSaidAndJobsEndWithTheirGroups) {
  if (run({"/usr/bin/unshare", "--mount", "true"}).exit_code != 0)
    GTEST_SKIP() << "skipped: no mount namespace can be made here (needs root)";
  Running job({"/usr/bin/unshare", "--mount", "/bin/sh", "-c",
               "mount -t tmpfs none /proc && exec \"$0\" \"$@\"", program("dtrain-launch"),
               "--nproc_per_node=2", "--shutdown-timeout=0.3", "--hang-timeout=1", "sh", "-c",
               "trap '' TERM; sleep 300 & echo up; sleep 300"});
  ASSERT_TRUE(eventually([&] { return alive(job, "sleep") >= 4; })) << job.out() << job.err();
  EXPECT_THAT(job.err(), HasSubstr("/proc is not that of this PID namespace"));
  EXPECT_THAT(job.err(), HasSubstr("workers that hang are not noticed"));
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait(), 128 + SIGTERM) << job.err();
  EXPECT_EQ(alive(job, "sleep"), 0U) << job.err();
}

TEST(NoProc, NodesMeetWithoutIt) {
  if (run({"/usr/bin/unshare", "--mount", "true"}).exit_code != 0)
    GTEST_SKIP() << "skipped: no mount namespace can be made here (needs root)";
  const TempDir folder;
  write_script(folder / "launch",
               "exec /usr/bin/unshare --mount /bin/sh -c 'mount -t tmpfs none /proc && exec "
               "\"$0\" \"$@\"' " +
                   program("dtrain-launch") + " \"$@\"");
  Nodes nodes(0, {});
  for (const int node : {0, 1})
    nodes.add(node, {"--nproc_per_node=1", "sh", "-c", "echo $RANK"}, "2", {}, folder / "launch");
  for (const int node : {0, 1}) EXPECT_EQ(nodes[node].wait(), 0) << nodes.errors();
}

// Process 1 reaps whatever has lost its parent; how a launcher's own helpers ended is the launcher's to know.
TEST(ProcessOne, SeesThatItsNodeAgentWasKilled) {
  if (run({"/usr/bin/unshare", "--pid", "--fork", "--mount-proc", "true"}).exit_code != 0)
    GTEST_SKIP() << "skipped: no process namespace can be made here (needs root)";
  const TempDir folder;
  write_script(folder / "launch", "exec /usr/bin/unshare --pid --fork --mount-proc --kill-child " +
                                      program("dtrain-launch") + " \"$@\"");
  Nodes nodes(0, {});
  for (const int node : {0, 1})
    nodes.add(node, {"--nproc_per_node=1", "sh", "-c", "echo up; exec sleep 300"}, "2", {},
              folder / "launch");
  ASSERT_TRUE(eventually([&] { return nodes.lines() == 2; })) << nodes.errors();
  const std::vector<pid_t> all = nodes[1].marked();
  const auto agent =
      std::find_if(all.begin(), all.end(), [](pid_t pid) { return name_of(pid) == "dtrain-agent"; });
  ASSERT_NE(agent, all.end());
  ::kill(*agent, SIGKILL);
  for (const int node : {0, 1}) EXPECT_GT(nodes[node].wait(), 0) << nodes.errors();
  EXPECT_THAT(nodes[1].err(), HasSubstr("this launcher's process for the network, was killed by SIGKILL"));
}

}  // namespace
}  // namespace dtrain::test
