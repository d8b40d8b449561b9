// What is reported of a process' threads, with tools that are scripts: how much, in which order, and that
// nobody is left stopped.
#include "launcher/watch/stacks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/support/temp_dir.h"

namespace dtrain::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// A child that waits, and a PATH on which `folder_` comes first.
class Stacks : public ::testing::Test {
 protected:
  Stacks() {
    path_ = std::getenv("PATH");
    ::setenv("PATH", (folder_.path().string() + ":" + path_).c_str(), 1);
    child_ = ::fork();
    if (child_ == 0) {
      while (true) ::pause();
    }
  }
  void SetUp() override { ASSERT_TRUE(reaches('S')) << "waits in pause"; }
  ~Stacks() override {
    ::setenv("PATH", path_.c_str(), 1);
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }

  void write_gdb(const std::string& script) {
    const std::string path = folder_ / "gdb";
    std::ofstream(path) << "#!/bin/sh\n" << script << "\n";
    ASSERT_EQ(::chmod(path.c_str(), 0755), 0);
  }
  char state() const {
    const std::string stat = test::read_file("/proc/" + std::to_string(child_) + "/stat");
    return stat.at(stat.rfind(')') + 2);
  }
  bool reaches(char wanted) const {
    for (int i = 0; i < 2000 && state() != wanted; ++i) std::this_thread::sleep_for(milliseconds(5));
    return state() == wanted;
  }
  std::vector<std::string> stacks(std::size_t max_lines = 20, Duration patience = seconds(60)) const {
    return stacks_of(child_, Deadline::after(patience), max_lines);
  }

  test::TempDir folder_;
  std::string path_;
  pid_t child_ = -1;
};

TEST_F(Stacks, AToolThatIsKilledWhileItAttachesLeavesNobodyStopped) {
  const std::string stopped = folder_ / "stopped";
  write_gdb("trap '' TERM; while [ \"$1\" != -p ]; do shift; done; kill -STOP $2 && touch " + stopped +
            "; exec sleep 60");
  EXPECT_THAT(stacks(20, seconds(2)), Contains("gdb: no answer in time"));
  EXPECT_TRUE(std::filesystem::exists(stopped));
  EXPECT_TRUE(reaches('S')) << state();
}

TEST_F(Stacks, OneThatIsStoppedAlreadyIsLeftAlone) {
  write_gdb("touch " + (folder_ / "asked").string());
  ASSERT_EQ(::kill(child_, SIGSTOP), 0);
  ASSERT_TRUE(reaches('T'));
  EXPECT_EQ(stacks().back(), "it is stopped: continue it by kill -CONT " + std::to_string(child_));
  EXPECT_EQ(state(), 'T');
  EXPECT_FALSE(std::filesystem::exists(folder_ / "asked"));
}

TEST_F(Stacks, TheKernelIsAskedFirst) {
  write_gdb(
      "printf 'Thread 1 (Thread 0x7f (LWP 42) \"loader\"):\\n#0  0x00007f in pause () from /lib/libc.so\\n#1 "
      " main (argc=1) at "
      "x.c:3\\n'");
  const std::vector<std::string> lines = stacks();
  ASSERT_EQ(lines.size(), 4U) << ::testing::PrintToString(lines);
  EXPECT_EQ(lines[0], "threads as the kernel sees them:");
  EXPECT_THAT(lines[1], HasSubstr("sleeping in pause"));
  EXPECT_EQ(lines[2], "stacks by gdb:");
  EXPECT_EQ(lines[3], "thread 42 (loader): pause < main");
}

TEST_F(Stacks, ThreadsThatDoTheSameShareALine) {
  write_gdb(
      "for i in $(seq 100); do echo \"Thread $i (LWP $i):\"; echo '#0  wait (x=1)'; [ $i -lt 98 ] || echo "
      "\"#1  "
      "f$i ()\"; done");
  EXPECT_THAT(stacks(),
              ::testing::AllOf(Contains("thread 1 and 96 like it: wait"), Contains("thread 98: wait < f98"),
                               Contains("thread 100: wait < f100")));
  EXPECT_EQ(stacks(5).size(), 5U);
  EXPECT_EQ(stacks(5).back(), "… and 3 more");
}

TEST_F(Stacks, ADeepStackIsCut) {
  write_gdb("echo 'Thread 1:'; for i in $(seq 40); do echo \"#$i  recursion ()\"; done");
  EXPECT_TRUE(stacks().back().ends_with("recursion < …"));
  EXPECT_LT(stacks().back().size(), 300U);
}

TEST_F(Stacks, WhatIsMissingIsNamedOnlyThen) {
  ::setenv("PATH", folder_.path().c_str(), 1);
  EXPECT_EQ(stacks().back(), "for its stacks install gdb");
  write_gdb("echo 'ptrace: Operation not permitted.'; exit 1");
  EXPECT_EQ(stacks().back(), "gdb: ptrace: Operation not permitted.");
  EXPECT_THAT(stacks(), Not(Contains(HasSubstr("install"))));
}

}  // namespace
}  // namespace dtrain::launcher
