// A worker is more than its first process: what it has started is asked to end, waited for and ended with it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>

#include "runtime/base/clock.h"
#include "tests/launch/running.h"
#include "tests/support/process.h"
#include "tests/support/temp_dir.h"

namespace dtrain::test {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kTrainer = DTRAIN_TREE_TRAINER;  // tree_trainer.cc

class Trees : public ::testing::Test {
 protected:
  std::string saved() const { return fs::exists(folder_ / "saved") ? read_file(folder_ / "saved") : ""; }
  // A script with the trainer's command in $TRAINER.
  std::string write_script(const std::string& text) const {
    const std::string path = folder_ / "worker.sh";
    std::ofstream(path) << "#!/bin/sh\n" << text << "\n";
    ::chmod(path.c_str(), 0755);
    return path;
  }
  std::map<std::string, std::string> environment(int saving_ms = 0) const {
    return {{"TRAINER",
             std::string(kTrainer) + " " + (folder_ / "saved").string() + " " + std::to_string(saving_ms)},
            {"FIFO", (folder_ / "fifo").string()}};
  }
  static bool is_up(const Running& job, int workers = 1) {
    const std::string out = job.out();
    return std::count(out.begin(), out.end(), '\n') >= workers;
  }
  TempDir folder_;
};

// Scripts around a trainer; one that traps the signal cannot act on it before the trainer has ended.
class Wrapped : public Trees, public ::testing::WithParamInterface<const char*> {};

TEST_P(Wrapped, ATrainerSavesOnSigterm) {
  Running job(launch_command({"--shutdown-timeout=60", write_script(GetParam())}), environment(300));
  ASSERT_TRUE(eventually([&] { return is_up(job); })) << job.err();
  job.signal(SIGTERM);
  EXPECT_THAT(job.wait(), ::testing::AnyOf(0, 128 + SIGTERM)) << job.err();
  EXPECT_EQ(saved(), "saved\n") << job.err();
  EXPECT_TRUE(job.marked().empty());
}

TEST_P(Wrapped, ATrainerGetsTheTimeToSaveThatItsFileAsksFor) {
  Running job(launch_command({"--shutdown-timeout=0.2", write_script(GetParam())}), environment(900));
  ASSERT_TRUE(eventually([&] { return is_up(job); })) << job.err();
  job.signal(SIGTERM);
  EXPECT_NE(job.wait(), -1) << job.err();
  EXPECT_EQ(saved(), "saved\n") << job.err();
  EXPECT_THAT(job.err(), HasSubstr("rank 0 is writing a checkpoint"));
}

TEST_P(Wrapped, ATrainerSavesWhenANeighbourFails) {
  const std::string script =
      write_script("[ $RANK = 0 ] && { until [ -e $DIR/fail ]; do sleep 0.02; done; exit 5; }\n" +
                   std::string(GetParam()));
  auto variables = environment(300);
  variables["DIR"] = folder_.path();
  Running job(launch_command({"--nproc_per_node=2", "--shutdown-timeout=60", script}), variables);
  ASSERT_TRUE(eventually([&] { return is_up(job); })) << job.err();
  std::ofstream(folder_ / "fail") << "now\n";
  EXPECT_EQ(job.wait(), 5) << job.err();
  EXPECT_EQ(saved(), "saved\n") << job.err();
}

TEST_P(Wrapped, AUsersSignalReachesTheTrainerAndHarmsNobody) {
  Running job(launch_command({write_script(GetParam())}), environment());
  ASSERT_TRUE(eventually([&] { return is_up(job); })) << job.err();
  for (const char* expected : {"saved\n", "saved\nsaved\n"}) {
    job.signal(SIGUSR1);
    EXPECT_TRUE(eventually([&] { return saved() == expected; })) << job.err();
  }
  job.signal(SIGTERM);
  EXPECT_NE(job.wait(), -1) << job.err();
  EXPECT_EQ(saved(), "saved\nsaved\nsaved\n") << job.err();
}

INSTANTIATE_TEST_SUITE_P(Trees, Wrapped,
                         ::testing::Values("exec $TRAINER", "$TRAINER; exit $?",
                                           "sh -c '$TRAINER; true'; true",
                                           "trap 'echo bye' TERM USR1; $TRAINER; exit $?",
                                           "setsid $TRAINER; exit $?", "$TRAINER & wait", "$TRAINER | cat",
                                           "trap 'echo bye' TERM USR1; $TRAINER | (cat; true)",
                                           "mkfifo $FIFO; cat <$FIFO & $TRAINER >$FIFO"));

TEST_F(Trees, ASignalThatNobodyHandlesKillsNobodyAndIsTakenWhenSomebodyDoes) {
  Running job(launch_command({write_script("echo up; until [ -e $DIR/go ]; do sleep 0.05; done; "
                                           "trap 'got=1' USR1; until [ -n \"$got\" ]; do sleep 0.05; done")}),
              {{"DIR", folder_.path()}});
  ASSERT_TRUE(eventually([&] { return is_up(job); })) << job.err();
  job.signal(SIGUSR1);
  EXPECT_EQ(job.wait(milliseconds(500)), -1) << job.err();
  std::ofstream(folder_ / "go") << "now\n";
  EXPECT_EQ(job.wait(), 0) << job.err();
}

TEST_F(Trees, CommandsOfATrapEndByThemselves) {
  Running job(launch_command({write_script("trap 'sleep 1; touch $DIR/copied; exit 3' TERM; touch $DIR/up; "
                                           "while :; do sleep 0.05; done")}),
              {{"DIR", folder_.path()}});
  ASSERT_TRUE(eventually([&] { return fs::exists(folder_ / "up"); })) << job.err();
  const TimePoint told = steady_clock().now();
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait(), 3) << job.err();
  EXPECT_TRUE(fs::exists(folder_ / "copied")) << job.err();
  EXPECT_GE(steady_clock().now() - told, std::chrono::seconds(1)) << "the trap's sleep was ended";
}

TEST_F(Trees, AStoppedTrainerIsWokenToSave) {
  Running job(launch_command({write_script("exec $TRAINER")}), environment());
  ASSERT_TRUE(eventually([&] { return is_up(job); })) << job.err();
  for (const pid_t pid : job.marked()) {
    const std::string name = read_file("/proc/" + std::to_string(pid) + "/comm");
    if (name != "tree_trainer\n") continue;
    ::kill(pid, SIGSTOP);
    EXPECT_TRUE(eventually([&] {
      return read_file("/proc/" + std::to_string(pid) + "/status").find("State:\tT") != std::string::npos;
    }));
  }
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(saved(), "saved\n") << job.err();
}

TEST_F(Trees, AnUploadInTheBackgroundOfAGoodJobIsLetFinish) {
  Running job(
      launch_command({"--nproc_per_node=2", write_script("(sleep 1; touch $DIR/uploaded.$RANK) & exit 0")}),
      {{"DIR", folder_.path()}});
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_TRUE(fs::exists(folder_ / "uploaded.0") && fs::exists(folder_ / "uploaded.1")) << job.err();
  EXPECT_THAT(job.err(), AllOf(ContainsRegex("all workers have ended, but [0-9]+ processes that they left"),
                               HasSubstr("up to 30 s more (--shutdown-timeout)"),
                               ContainsRegex("\\(pid [0-9]+, of rank 0\\)"), Not(HasSubstr("ended 2"))));
}

TEST_F(Trees, WhatRunsOnForEverEndsAfterItsTime) {
  Running job(launch_command({"--shutdown-timeout=0.5", write_script("sleep 300 & exit 0")}));
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_THAT(job.err(), HasSubstr("ended 1 process that workers had left behind"));
  EXPECT_TRUE(job.marked().empty());
}

TEST_F(Trees, CtrlCEndsTheWaitForWhatRunsOn) {
  Running job(launch_command({write_script("(trap '' INT TERM; sleep 300) & exit 0")}));
  ASSERT_TRUE(eventually([&] { return job.err().find("all workers have ended") != std::string::npos; }));
  job.signal(SIGINT);
  EXPECT_EQ(job.wait(milliseconds(300)), -1) << "it is deaf";
  job.signal(SIGINT);
  EXPECT_EQ(job.wait(), 0) << "as the workers ended\n" << job.err();
  EXPECT_TRUE(job.marked().empty());
}

TEST_F(Trees, ARestartWaitsForWhatTheFailedWorkerLeft) {
  const std::string script = write_script(
      "[ $TORCHELASTIC_RESTART_COUNT = 1 ] && { cat $DIR/saved; exit 0; }; $TRAINER & "
      "until [ -e $DIR/fail ]; do sleep 0.02; done; exit 9");
  auto variables = environment(700);
  variables["DIR"] = folder_.path();
  Running job(launch_command({"--max-restarts=1", "--shutdown-timeout=60", script}), variables);
  ASSERT_TRUE(eventually([&] { return is_up(job); })) << job.err();
  std::ofstream(folder_ / "fail") << "now\n";
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(job.out(), "up\nsaving\nsaved\n") << job.err();
}

}  // namespace
}  // namespace dtrain::test
