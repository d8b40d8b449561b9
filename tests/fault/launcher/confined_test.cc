// Jobs end, and nothing outlives them, also where the kernel refuses descriptors of processes, and where
// /proc shows the processes of another PID namespace.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>

#include "tests/launch/running.h"
#include "tests/support/process.h"
#include "tests/support/temp_dir.h"

namespace dtrain::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A worker with children in its group, in another session, and orphaned there; deaf to SIGTERM.
constexpr const char* kFamily =
    "trap '' TERM; sleep 300 & setsid sleep 300 & (setsid sleep 300 &); echo up; sleep 300; sleep 300";

// Of the whole machine's, those that carry the job's mark and have that name.
std::size_t alive(const Running& job, const std::string& name) {
  const std::vector<pid_t> all = job.marked();
  return static_cast<std::size_t>(std::count_if(all.begin(), all.end(), [&](pid_t pid) {
    return read_file("/proc/" + std::to_string(pid) + "/comm") == name + "\n";
  }));
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

}  // namespace
}  // namespace dtrain::test
