// Workers of any program that make no progress are named, with what they are doing; the job continues.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>

#include "cluster/net/endpoint.h"
#include "runtime/base/fd.h"
#include "tests/launch/running.h"
#include "tests/support/process.h"

namespace dtrain::test {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

/// Rank 1 runs `script` and prints before and, for a second, after it; the others print all the time, until
/// rank 1 has come through.
std::vector<std::string> beside_a_busy_rank(const std::vector<std::string>& options,
                                            const std::string& script, const TempDir& folder) {
  const std::string end = (folder / "end").string();
  std::vector<std::string> argv{program("dtrain-launch"), "--nproc_per_node=2", "--hang-timeout=1"};
  argv.insert(argv.end(), options.begin(), options.end());
  argv.insert(argv.end(), {"sh", "-c",
                           "if [ $RANK = 1 ]; then echo before; " + script +
                               "; for i in 1 2 3 4 5 6; do echo after; sleep 0.2; done; touch " + end +
                               "; else until [ -e " + end + " ]; do echo on; sleep 0.1; done; fi"});
  return argv;
}

/// A shell script in `folder`.
void write_tool(const TempDir& folder, const std::string& name, const std::string& script) {
  const std::string path = (folder / name).string();
  std::ofstream(path) << "#!/bin/sh\n" << script << "\n";
  ASSERT_EQ(::chmod(path.c_str(), 0755), 0);
}

TEST(Hang, ARankThatStandsStillIsNamedAndSoIsItsGoingOn) {
  TempDir folder;
  const std::string go = (folder / "go").string();
  ASSERT_EQ(::mkfifo(go.c_str(), 0600), 0);
  Running job(beside_a_busy_rank({}, "read word < " + go, folder));
  ASSERT_TRUE(eventually([&] { return job.err().find("rank 1 (pid") != std::string::npos; })) << job.err();
  EXPECT_THAT(job.err(), HasSubstr("hang: rank 1 has made no progress for 1 s"));
  EXPECT_THAT(job.err(), ContainsRegex("rank 1 \\(pid [0-9]+\\): idle for [0-9.]+ s, uses 0.0. cores, last "
                                       "output [0-9.]+ s ago; sleeping in openat"));
  EXPECT_THAT(job.err(), ContainsRegex("rank 0 \\(pid [0-9]+\\): running"));
  EXPECT_THAT(job.err(), Not(HasSubstr("stacks")));
  std::ofstream(go) << "go\n";
  EXPECT_EQ(job.wait(), 0);
  EXPECT_THAT(job.err(), HasSubstr("hang: all workers here make progress again"));
}

TEST(Hang, AStoppedWorkerIsCalledSo) {
  TempDir folder;
  Running job(beside_a_busy_rank({}, "kill -STOP $$", folder));
  ASSERT_TRUE(eventually([&] { return job.err().find("idle for") != std::string::npos; })) << job.err();
  EXPECT_THAT(job.err(), HasSubstr("stopped by a signal or a debugger (state T)"));
}

TEST(Hang, StacksComeFromTheToolsThatAreThere) {
  TempDir folder;
  // A Python by name; and tools that say what they were asked.
  fs::copy_file("/bin/sleep", folder / "python3.99");
  write_tool(folder, "py-spy", "echo Thread of; echo \"    python frames of $*\"");
  write_tool(folder, "gdb", "echo Thread of; echo '#0  0x01 in frame ()'");
  const std::string path = folder.path().string() + ":" + std::getenv("PATH");
  Running python(
      beside_a_busy_rank({"--on-hang=stacks"}, "exec " + (folder / "python3.99").string() + " 60", folder),
      {{"PATH", path}});
  ASSERT_TRUE(eventually([&] { return python.err().find("stacks by gdb") != std::string::npos; }))
      << python.err();
  EXPECT_THAT(python.err(), ContainsRegex("rank 1, threads as the kernel sees them:.*\n.*thread [0-9]+ .*: "
                                          "sleeping in .*\n.*stacks by py-spy:\n"));
  EXPECT_THAT(python.err(), ContainsRegex("thread of: python frames of dump --pid [0-9]+"));
  EXPECT_THAT(python.err(), ContainsRegex("rank 0, threads.*\n.*\n.*stacks by gdb:\n.*thread of: frame\n"));
}

TEST(Hang, WithoutToolsTheKernelIsAsked) {
  TempDir folder;
  // No gdb where this PATH leads, only what the script needs.
  for (const char* tool : {"sh", "sleep", "touch"}) {
    fs::create_symlink(
        fs::exists(fs::path("/bin") / tool) ? fs::path("/bin") / tool : fs::path("/usr/bin") / tool,
        folder / tool);
  }
  Running job(beside_a_busy_rank({"--on-hang=stacks"}, "sleep 60", folder),
              {{"PATH", folder.path().string()}});
  ASSERT_TRUE(eventually([&] { return job.err().find("thread ") != std::string::npos; })) << job.err();
  EXPECT_THAT(job.err(), HasSubstr("rank 1, threads as the kernel sees them:"));
  EXPECT_THAT(job.err(), ContainsRegex("thread [0-9]+ \\(sleep\\): sleeping in clock_nanosleep"));
  EXPECT_THAT(job.err(), HasSubstr("for its stacks install gdb"));
}

TEST(Hang, BelowAShellScriptItIsTheProgramThatIsLookedAt) {
  TempDir folder;
  write_tool(folder, "gdb",
             "while [ \"$1\" != -p ]; do shift; done; echo Thread of $(cat /proc/$2/comm); echo frame");
  const std::string path = folder.path().string() + ":" + std::getenv("PATH");
  Running job(beside_a_busy_rank({"--on-hang=stacks"}, "sh -c 'sleep 60; true'; true", folder),
              {{"PATH", path}});
  ASSERT_TRUE(eventually([&] { return job.err().find("frame") != std::string::npos; })) << job.err();
  EXPECT_THAT(job.err(), ContainsRegex("rank 1 \\(pid [0-9]+\\): idle .*; its process [0-9]+ \\(sleep\\): "
                                       "sleeping in clock_nanosleep"));
  EXPECT_THAT(job.err(), HasSubstr("thread of sleep: frame"));
}

TEST(Hang, ADebuggerThatHangsStopsNobodyForGood) {
  TempDir folder;
  const std::string go = (folder / "go").string(), stopped = (folder / "stopped").string();
  ASSERT_EQ(::mkfifo(go.c_str(), 0600), 0);
  write_tool(
      folder, "gdb",
      "while [ \"$1\" != -p ]; do shift; done; kill -STOP $2 && touch " + stopped + "; exec sleep 600");
  const std::string path = folder.path().string() + ":" + std::getenv("PATH");
  Running job(beside_a_busy_rank({"--on-hang=stacks"}, "read word < " + go, folder), {{"PATH", path}});
  ASSERT_TRUE(
      eventually([&] { return job.err().find("gdb: no answer in time") != std::string::npos; }, seconds(90)))
      << job.err();
  // Not for writing alone: that would wait for a worker that is stopped.
  const UniqueFd fifo(::open(go.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::write(fifo.get(), "go\n", 3), 3);
  EXPECT_EQ(job.wait(seconds(60)), 0) << job.err();
  EXPECT_TRUE(fs::exists(stopped));
}

TEST(Hang, AReportOfManyWorkersIsHalfAPage) {
  TempDir folder;
  write_tool(folder, "gdb",
             "for i in $(seq 40); do echo \"Thread $i:\"; echo \"#0  f$i ()\"; echo \"#1  f ()\"; done");
  const std::string path = folder.path().string() + ":" + std::getenv("PATH");
  Running job({program("dtrain-launch"), "--nproc_per_node=16", "--hang-timeout=1", "--on-hang=stacks",
               "sleep", "600"},
              {{"PATH", path}});
  ASSERT_TRUE(eventually([&] { return job.err().find("left out") != std::string::npos; })) << job.err();
  const std::string report = job.err();
  EXPECT_LE(std::count(report.begin(), report.end(), '\n'), 40) << report;
  EXPECT_THAT(report, HasSubstr("stacks by gdb"));
}

TEST(Hang, NcclsMonitorIsAskedWhereThereIsOne) {
  TempDir folder;
  const Listener monitor = listen_on("127.0.0.1", 0, Deadline::after(seconds(5)));
  std::jthread answering([&monitor] {
    pollfd wait{monitor.fd.get(), POLLIN, 0};
    ::poll(&wait, 1, 20000);
    const UniqueFd asker(::accept(monitor.fd.get(), nullptr, nullptr));
    char question[64];
    const ssize_t got = ::recv(asker.get(), question, sizeof question, 0);
    const std::string answer = std::string(question, static_cast<std::size_t>(std::max<ssize_t>(got, 0))) +
                               "communicator 0x1: rank 1 has not called all_reduce\n";
    ::send(asker.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
  });
  Running job(beside_a_busy_rank({}, "sleep 60", folder), {{"NCCL_RAS_ADDR", monitor.address.text()}});
  ASSERT_TRUE(eventually([&] { return job.err().find("NCCL says") != std::string::npos; })) << job.err();
  EXPECT_THAT(job.err(), HasSubstr("NCCL says: verbose status"));
  EXPECT_THAT(job.err(), HasSubstr("rank 1 has not called all_reduce"));
}

TEST(Hang, NothingIsSaidWhenNobodyWantsIt) {
  TempDir folder;
  Running job(beside_a_busy_rank({"--on-hang=none"}, "sleep 3", folder));
  EXPECT_EQ(job.wait(), 0);
  EXPECT_THAT(job.err(), Not(HasSubstr("hang")));
}

TEST(Hang, WrongOptionsAreRefused) {
  EXPECT_THAT(launch({"--on-hang=panic", "true"}).err,
              HasSubstr("--on-hang (from command line): expected none, report or stacks, got 'panic'"));
  EXPECT_THAT(launch({"--hang-timeout=0", "true"}).err,
              HasSubstr("--hang-timeout (from command line): expected at least 1 second"));
}

}  // namespace
}  // namespace dtrain::test
