// Workers and the terminal: nobody is stopped for using it, rank 0 has the keyboard, Ctrl-Z stops a job only
// where it can be continued, and a worker that was stopped is named.
#include "tests/launch/terminal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "tests/launch/running.h"
#include "tests/support/process.h"
#include "tests/support/temp_dir.h"

namespace dtrain::test {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kCtrlC = "\x03";
constexpr const char* kCtrlZ = "\x1a";

class TerminalWorkers : public ::testing::TestWithParam<const char*> {
 protected:
  static std::vector<std::string> command(const std::string& script) {
    return launch_command({std::string("--nproc_per_node=") + GetParam(), "sh", "-c", script});
  }
};

INSTANTIATE_TEST_SUITE_P(Terminal, TerminalWorkers, ::testing::Values("1", "2"));

TEST_P(TerminalWorkers, HaveNoTerminalThatCouldStopThem) {
  OnTerminal job(command("read x </dev/tty || exit 3"));
  EXPECT_EQ(job.wait(), 3) << job.shown();
}

TEST_P(TerminalWorkers, MayWriteToItEvenWhereBackgroundJobsMayNot) {
  OnTerminal job(command("[ $RANK = 0 ] || exit 0; stty tostop; echo written > $(readlink /proc/self/fd/0)"));
  EXPECT_EQ(job.wait(), 0) << job.shown();
  EXPECT_THAT(job.shown(), HasSubstr("written"));
}

TEST_P(TerminalWorkers, RankZeroHasTheKeyboard) {
  OnTerminal job(command("[ $RANK = 0 ] || exit 0; echo ready; read word; echo got $word"));
  ASSERT_TRUE(job.shows("ready")) << job.shown();
  job.type("hello\r");
  EXPECT_EQ(job.wait(), 0) << job.shown();
  EXPECT_THAT(job.shown(), HasSubstr("got hello"));
}

TEST_P(TerminalWorkers, OtherRanksReadNothing) {
  OnTerminal job(command("[ $RANK = 0 ] && exit 0; read word || exit 4"));
  EXPECT_EQ(job.wait(), std::string(GetParam()) == "1" ? 0 : 4) << job.shown();
}

TEST_P(TerminalWorkers, GetCtrlCThroughTheLauncher) {
  OnTerminal job(command("trap 'exit 7' INT; echo ready; while :; do sleep 0.05; done"));
  ASSERT_TRUE(job.shows("ready")) << job.shown();
  job.type(kCtrlC);
  EXPECT_EQ(job.wait(), 7) << job.shown();
}

// The echo is what a password prompt turns off; one that is killed cannot turn it on again.
TEST(Terminal, GetsItsModesBackFromAWorkerThatIsKilled) {
  OnTerminal job(launch_command({"--nproc_per_node=1", "sh", "-c", "stty -echo; echo ready; read word"}));
  ASSERT_TRUE(job.shows("ready")) << job.shown();
  EXPECT_FALSE(job.echoes());
  job.type(kCtrlC);
  EXPECT_EQ(job.wait(), 128 + SIGINT) << job.shown();
  EXPECT_TRUE(job.echoes());
}

TEST(Terminal, ABackgroundJobLeavesTheKeyboardToTheShell) {
  OnTerminal shell({"bash", "--norc", "-i"});
  shell.type(program("dtrain-launch") +
             " --nproc_per_node=1 sh -c 'read word || echo no-$((40 + 2))' & wait; echo e''nd\r");
  EXPECT_TRUE(shell.shows("no-42")) << shell.shown();
  EXPECT_TRUE(shell.shows("end")) << shell.shown();
}

// As under `docker exec -it` or `ssh -t HOST COMMAND`: the launcher leads the session.
TEST(Terminal, CtrlZStopsNothingThatNobodyCouldContinue) {
  const TempDir folder;
  const std::string go = folder / "go";
  OnTerminal job(launch_command({"--nproc_per_node=2", "sh", "-c",
                                 "echo ready; until [ -e " + go + " ]; do sleep 0.05; done; echo over"}));
  ASSERT_TRUE(job.shows("ready", 2)) << job.shown();
  job.type(kCtrlZ);
  ASSERT_TRUE(job.shows("the job keeps running")) << job.shown();
  EXPECT_EQ(run({"touch", go}).exit_code, 0);
  EXPECT_EQ(job.wait(), 0) << job.shown();
  EXPECT_THAT(job.shown(), Not(HasSubstr("has been stopped")));
}

TEST(Terminal, CtrlZBelowAShellStopsTheJobUntilItIsContinued) {
  const TempDir folder;
  const std::string go = folder / "go";
  OnTerminal shell({"bash", "--norc", "-i"});
  shell.type(program("dtrain-launch") + " --nproc_per_node=2 sh -c 'echo r''eady; until [ -e " + go +
             " ]; do sleep 0.05; done; echo o''ver'\r");
  ASSERT_TRUE(shell.shows("ready", 2)) << shell.shown();
  shell.type(kCtrlZ);
  ASSERT_TRUE(shell.shows("Stopped")) << shell.shown();
  EXPECT_EQ(run({"touch", go}).exit_code, 0);
  EXPECT_FALSE(shell.shows("over", 1, std::chrono::milliseconds(300))) << "workers are to be stopped too";
  shell.type("fg\r");
  EXPECT_TRUE(shell.shows("over", 2)) << shell.shown();
  shell.type("echo code=$?\r");
  EXPECT_TRUE(shell.shows("code=0")) << shell.shown();
  EXPECT_THAT(shell.shown(), AllOf(Not(HasSubstr("has been stopped")), Not(HasSubstr("continued"))));
}

// Only the parent of a process is told by the kernel, which here is a shell.
TEST(Terminal, AStoppedProcessBelowAWorkerIsNamedAtOnce) {
  Running job(launch_command(
      {"--nproc_per_node=2", "sh", "-c", "[ $RANK = 0 ] || { sleep 300 & kill -STOP $!; }; sleep 300"}));
  const auto says = [&job](const std::string& text) {
    return eventually([&] { return job.err().find(text) != std::string::npos; });
  };
  ASSERT_TRUE(says("(kill -CONT ")) << job.err();
  EXPECT_THAT(job.err(),
              ContainsRegex("process [0-9]+ \\((sh|sleep)\\) of rank 1 has been stopped: it does "));
  const std::size_t at = job.err().find("kill -CONT ") + 11;
  EXPECT_EQ(::kill(std::stoi(job.err().substr(at)), SIGCONT), 0);
  EXPECT_TRUE(says("has been continued")) << job.err();
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait(), 128 + SIGTERM) << job.err();
}

TEST(Terminal, AStoppedWorkerIsNamedAtOnce) {
  const TempDir folder;
  const std::string go = folder / "go";
  Running job(
      launch_command({"--nproc_per_node=2", "sh", "-c",
                      "[ $RANK = 0 ] || kill -STOP $$; until [ -e " + go + " ]; do sleep 0.05; done"}));
  const auto says = [&job](const std::string& text) {
    return eventually([&] { return job.err().find(text) != std::string::npos; });
  };
  ASSERT_TRUE(says("(kill -CONT ")) << job.err();
  EXPECT_THAT(job.err(), ContainsRegex("rank 1 \\(pid [0-9]+\\) has been stopped by SIGSTOP: "));
  const std::size_t at = job.err().find("kill -CONT ") + 11;
  EXPECT_EQ(::kill(std::stoi(job.err().substr(at)), SIGCONT), 0);
  EXPECT_TRUE(says("has been continued")) << job.err();
  EXPECT_EQ(run({"touch", go}).exit_code, 0);
  EXPECT_EQ(job.wait(), 0) << job.err();
}

}  // namespace
}  // namespace dtrain::test
