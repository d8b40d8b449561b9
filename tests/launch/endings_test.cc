// How a job ends: failures, signals, restarts, and what is printed last.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>

#include "runtime/base/fd.h"
#include "tests/launch/running.h"
#include "tests/support/process.h"
#include "tests/support/temp_dir.h"

namespace dtrain::test {
namespace {

using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

bool has_lines(const Running& job, int lines) {
  const std::string out = job.out();
  return std::count(out.begin(), out.end(), '\n') >= lines;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

TEST(Endings, TheFailedWorkersCodeIsTheJobs) {
  const RunResult result = launch({"--nproc_per_node=4", "sh", "-c", "[ $RANK = 2 ] && exit 7; sleep 60"});
  EXPECT_EQ(result.exit_code, 7);
  EXPECT_THAT(result.err, AllOf(HasSubstr("rank 2 (host "), HasSubstr("failed first: exit code 7")));
}

TEST(Endings, ASignalIsNamedAndBecomes128More) {
  const RunResult result =
      launch({"--nproc_per_node=2", "sh", "-c", "[ $RANK = 1 ] && kill -SEGV $$; sleep 60"});
  EXPECT_EQ(result.exit_code, 128 + SIGSEGV);
  EXPECT_THAT(result.err, AllOf(HasSubstr("rank 1 "), HasSubstr("SIGSEGV")));
}

TEST(Endings, TheReportIsTheLastThingPrinted) {
  const RunResult result = launch(
      {"--nproc_per_node=2", "sh", "-c", "[ $RANK = 0 ] && { seq 20 >&2; echo why >&2; exit 1; }; sleep 60"});
  const std::size_t at = result.err.find("dtrain-launch: rank 0");
  ASSERT_NE(at, std::string::npos);
  const std::string report = result.err.substr(at);
  EXPECT_THAT(report, AllOf(HasSubstr("last lines"), HasSubstr("    why\n"), HasSubstr("    20\n"),
                            Not(HasSubstr("    5\n"))));
  EXPECT_TRUE(report.ends_with("    why\n")) << report;
}

TEST(Endings, AWorkerMayEndEarlyIfAllEndWell) {
  const RunResult result = launch({"--nproc_per_node=3", "sh", "-c", "[ $RANK = 0 ] || sleep 0.3"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
}

// Rank 0 waits until rank 1 has set its trap and made the file "ready" in the folder $DIR, and fails with 5.
constexpr const char* kRankZero =
    "[ $RANK = 0 ] && { until [ -e $DIR/ready ]; do sleep 0.02; done; exit 5; }; ";

TEST(Endings, WorkersThatIgnoreTermAreKilledAfterTheGrace) {
  const TempDir folder;
  RunOptions options;
  options.environment["DIR"] = folder.path();
  const auto start = std::chrono::steady_clock::now();
  const RunResult result =
      launch({"--nproc_per_node=2", "--shutdown-timeout=0.5", "sh", "-c",
              std::string(kRankZero) + "trap '' TERM; touch $DIR/ready; while :; do sleep 60; done"},
             options);
  EXPECT_EQ(result.exit_code, 5);
  const double took = seconds_since(start);
  EXPECT_GE(took, 0.5);
  EXPECT_LT(took, 15);
}

// Rank 1 is deaf to SIGTERM and writes a checkpoint for `seconds`.
constexpr const char* kSaving =
    "trap '' TERM; touch $DTRAIN_SAVING_FILE $DIR/ready; sleep $SECONDS_OF_SAVING; "
    "touch $DIR/saved; rm $DTRAIN_SAVING_FILE; exit 0";

TEST(Endings, AWorkerThatWritesACheckpointIsLetFinish) {
  const TempDir folder;
  RunOptions options;
  options.environment = {{"DIR", folder.path()}, {"SECONDS_OF_SAVING", "2"}};
  const RunResult result =
      launch({"--nproc_per_node=2", "--shutdown-timeout=0.2", "sh", "-c", std::string(kRankZero) + kSaving},
             options);
  EXPECT_EQ(result.exit_code, 5) << result.err;
  EXPECT_TRUE(std::filesystem::exists(folder / "saved")) << result.err;
  EXPECT_THAT(result.err, HasSubstr("rank 1 is writing a checkpoint"));
}

TEST(Endings, ACheckpointThatHangsIsCutOff) {
  const TempDir folder;
  RunOptions options;
  options.environment = {{"DIR", folder.path()}, {"SECONDS_OF_SAVING", "60"}};
  const auto start = std::chrono::steady_clock::now();
  const RunResult result = launch({"--nproc_per_node=2", "--shutdown-timeout=0.2", "--saving-timeout=0.5",
                                   "sh", "-c", std::string(kRankZero) + kSaving},
                                  options);
  EXPECT_EQ(result.exit_code, 5) << result.err;
  EXPECT_LT(seconds_since(start), 15);
}

TEST(Endings, WorkersGetTermFirst) {
  const TempDir folder;
  RunOptions options;
  options.environment["DIR"] = folder.path();
  const RunResult result = launch(
      {"--nproc_per_node=2", "sh", "-c",
       std::string(kRankZero) +
           "trap 'echo told > $DIR/told; exit 0' TERM; touch $DIR/ready; while :; do sleep 0.05; done"},
      options);
  EXPECT_EQ(result.exit_code, 5);
  EXPECT_EQ(read_file(folder / "told"), "told\n");
}

TEST(Endings, PythonsErrorFileIsQuoted) {
  const RunResult result = launch({"--nproc_per_node=1", "sh", "-c",
                                   "echo '{\"message\":{\"message\":\"RuntimeError: boom\"}}' > "
                                   "$TORCHELASTIC_ERROR_FILE; exit 1"});
  EXPECT_THAT(result.err, HasSubstr("its error: RuntimeError: boom"));
}

TEST(Endings, LeftoverProcessesEndWithTheJob) {
  Running job(
      launch_command({"--nproc_per_node=2", "sh", "-c", "setsid sleep 300 & (setsid sleep 300 &) ; exit 0"}));
  EXPECT_EQ(job.wait(), 0);
  EXPECT_TRUE(job.marked().empty());
  EXPECT_THAT(job.err(), ContainsRegex("ended [0-9]+ process"));
}

// All processes below this one, those that have ended and were not waited for included.
std::string children_of(pid_t pid) {
  const std::string number = std::to_string(pid);
  return read_file("/proc/" + number + "/task/" + number + "/children");
}

class LateSignal : public ::testing::TestWithParam<int> {};

// The launcher waits for a reader that does not read; the exit code is settled by then.
TEST_P(LateSignal, DoesNotReplaceTheCodeOfWorkersThatHaveEnded) {
  const TempDir folder;
  const std::string fifo = folder / "out";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const UniqueFd reader(::open(fifo.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_TRUE(reader);
  Running job({"/bin/sh", "-c", "exec \"$0\" \"$@\" >" + fifo, program("dtrain-launch"), "--nproc_per_node=1",
               "sh", "-c",
               "head -c 300000 /dev/zero; touch " + (folder / "up").string() + "; exit " +
                   std::to_string(GetParam())});
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(folder / "up"); })) << job.err();
  ASSERT_TRUE(eventually([&] { return job.marked().empty(); })) << job.err();
  EXPECT_TRUE(eventually([&] { return children_of(job.pid()).empty(); }, seconds(5))) << "not waited for";
  EXPECT_EQ(job.wait(std::chrono::milliseconds(200)), -1) << "it waits for the reader";
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait(), GetParam()) << job.err();
}

INSTANTIATE_TEST_SUITE_P(Codes, LateSignal, ::testing::Values(0, 9, 75));

class ForwardedSignal : public ::testing::TestWithParam<int> {};

TEST_P(ForwardedSignal, ReachesWorkersAndDecidesTheCode) {
  Running job(launch_command({"--nproc_per_node=2", "sh", "-c", "echo up; exec sleep 60"}));
  ASSERT_TRUE(eventually([&] { return has_lines(job, 2); }));
  job.signal(GetParam());
  EXPECT_EQ(job.wait(), 128 + GetParam()) << job.err();
  EXPECT_TRUE(job.marked().empty());
}

INSTANTIATE_TEST_SUITE_P(Endings, ForwardedSignal, ::testing::Values(SIGINT, SIGTERM, SIGHUP));

TEST(Endings, AWorkersRequeueCodePassesThrough) {
  Running job(launch_command(
      {"--nproc_per_node=2", "sh", "-c", "trap 'exit 75' TERM; echo up; while :; do sleep 0.05; done"}));
  ASSERT_TRUE(eventually([&] { return has_lines(job, 2); }));
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait(), 75) << job.err();
}

TEST(Endings, TheSecondSignalKillsAtOnce) {
  Running job(launch_command(
      {"--nproc_per_node=2", "sh", "-c", "trap '' INT TERM; echo up; while :; do sleep 60; done"}));
  ASSERT_TRUE(eventually([&] { return has_lines(job, 2); }));
  job.signal(SIGINT);
  EXPECT_EQ(job.wait(std::chrono::milliseconds(500)), -1) << "the workers do not want to end";
  job.signal(SIGINT);
  EXPECT_EQ(job.wait(seconds(10)), 128 + SIGINT) << job.err();
  EXPECT_TRUE(job.marked().empty());
}

// The program that reads its output may have been stopped.
TEST(Endings, ASignalEndsTheJobThoughNobodyReadsItsOutput) {
  const TempDir folder;
  const std::string fifo = folder / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const UniqueFd reader(::open(fifo.c_str(), O_RDWR | O_CLOEXEC));
  Running running({"/bin/sh", "-c", "exec \"$@\" > " + fifo, "sh", program("dtrain-launch"),
                   "--nproc_per_node=1", "yes"});
  ASSERT_TRUE(eventually([&] {
    int waiting = 0;
    return ::ioctl(reader.get(), FIONREAD, &waiting) == 0 && waiting >= 60000;
  }));
  running.signal(SIGTERM);
  EXPECT_EQ(running.wait(), 128 + SIGTERM) << running.err();
  EXPECT_TRUE(running.marked().empty());
}

TEST(Endings, StoppedWorkersAreKilledToo) {
  Running job(launch_command({"--nproc_per_node=2", "--shutdown-timeout=0.3", "sh", "-c",
                              "echo $$; [ $RANK = 0 ] && kill -STOP $$; exec sleep 60"}));
  ASSERT_TRUE(eventually([&] { return has_lines(job, 2); }));
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait(seconds(10)), 128 + SIGTERM) << job.err();
  EXPECT_TRUE(job.marked().empty());
}

TEST(Endings, UserSignalsArePassedOnWithoutEndingTheJob) {
  Running job(
      launch_command({"--nproc_per_node=2", "sh", "-c",
                      "trap 'got=1' USR1; echo up; while [ -z \"$got\" ]; do sleep 0.05; done; echo got"}));
  ASSERT_TRUE(eventually([&] { return has_lines(job, 2); }));
  job.signal(SIGUSR1);
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(job.out(), "up\nup\ngot\ngot\n");
}

TEST(Endings, ExtraSignalsCanBeHandled) {
  Running job(launch_command(
      {"--nproc_per_node=1", "--signals-to-handle=SIGALRM", "sh", "-c", "echo up; exec sleep 60"}));
  ASSERT_TRUE(eventually([&] { return has_lines(job, 1); }));
  job.signal(SIGALRM);
  EXPECT_EQ(job.wait(), 128 + SIGALRM);
}

TEST(Endings, HangupIsIgnoredUnderNohup) {
  Running job({"/bin/sh", "-c", "trap '' HUP; exec \"$0\" --nproc_per_node=1 sh -c 'echo up; sleep 0.5'",
               program("dtrain-launch")});
  ASSERT_TRUE(eventually([&] { return has_lines(job, 1); }));
  job.signal(SIGHUP);
  EXPECT_EQ(job.wait(), 0) << job.err();
}

TEST(Endings, ARestartBringsTheWholeGroupBackWithItsCount) {
  const RunResult result =
      launch({"--nproc_per_node=2", "--max-restarts=3", "sh", "-c",
              "echo $RANK:$TORCHELASTIC_RESTART_COUNT:$MASTER_PORT; "
              "[ $TORCHELASTIC_RESTART_COUNT = 2 ] && exit 0; [ $RANK = 1 ] && exit 9; sleep 60"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out,
              AllOf(ContainsRegex("0:2:[0-9]+"), ContainsRegex("1:2:[0-9]+"), Not(ContainsRegex("0:3:"))));
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("restart 1 of 3"), HasSubstr("restart 2 of 3"), HasSubstr("exit code 9")));
}

TEST(Endings, RestartsRunOut) {
  const std::string port = std::to_string(free_port());
  const RunResult result = launch({"--nproc_per_node=1", "--max-restarts=1", "--master_port=" + port, "sh",
                                   "-c", "echo $MASTER_PORT; exit 9"});
  EXPECT_EQ(result.exit_code, 9);
  EXPECT_THAT(result.err, AllOf(HasSubstr("restart 1 of 1"), Not(HasSubstr("restart 2"))));
  EXPECT_EQ(result.out, port + "\n" + port + "\n") << "a given port is kept";
}

TEST(Endings, ASignalIsNoReasonToRestart) {
  Running job(
      launch_command({"--nproc_per_node=1", "--max-restarts=3", "sh", "-c", "echo up; exec sleep 60"}));
  ASSERT_TRUE(eventually([&] { return has_lines(job, 1); }));
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait(), 128 + SIGTERM);
  EXPECT_THAT(job.err(), Not(HasSubstr("restart 1")));
}

// `dtrain train` from when it catches SIGTERM; those that are asked for here never get to a step.
bool sets_out_to_train(pid_t pid) {
  const std::string folder = "/proc/" + std::to_string(pid);
  if (read_file(folder + "/comm") != "dtrain\n") return false;
  const std::string status = read_file(folder + "/status");
  const std::size_t at = status.find("SigBlk:");
  if (at == std::string::npos) return false;
  return (std::stoull(status.substr(at + 7), nullptr, 16) >> (SIGTERM - 1) & 1) != 0;
}

TEST(Endings, AWorkerThatWaitsForTheOthersEndsAtOnceForItsLauncherAlone) {
  const std::string port = std::to_string(free_port());
  Running worker({program("dtrain"), "train", "--model=mlp", "--dataset=synthetic:1x28x28,10,40",
                  "--connect-timeout=300"},
                 {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", port}});
  ASSERT_TRUE(eventually([&] { return sets_out_to_train(worker.pid()); })) << worker.err();
  // Somebody else may have told this worker alone: the others wait for it.
  EXPECT_EQ(run({"/bin/sh", "-c", "kill -USR2 " + std::to_string(worker.pid())}).exit_code, 0);
  EXPECT_EQ(worker.wait(std::chrono::milliseconds(300)), -1) << worker.err();
  worker.signal(SIGTERM);
  EXPECT_THAT(worker.wait(), AnyOf(75, 128 + SIGTERM)) << "as a second signal half a second later\n"
                                                       << worker.err();
}

TEST(Endings, AWorkerThatIsKilledWhileTheOthersWaitForItEndsThemAtOnce) {
  const std::string train =
      program("dtrain") + " train --model=mlp --dataset=synthetic:1x28x28,10,40 --connect-timeout=300";
  Running job(launch_command({"--nproc_per_node=3", "--shutdown-timeout=300", "sh", "-c",
                              "[ $RANK = 1 ] && { echo $$; exec sleep 300; }; exec " + train}));
  const auto waiting = [&] {
    const std::vector<pid_t> all = job.marked();
    return std::count_if(all.begin(), all.end(), sets_out_to_train) >= 2;
  };
  ASSERT_TRUE(eventually([&] { return has_lines(job, 1) && waiting(); })) << job.err();
  ::kill(std::stoi(job.out()), SIGKILL);
  EXPECT_EQ(job.wait(), 128 + SIGKILL) << job.err();
  EXPECT_TRUE(job.marked().empty());
}

TEST(Endings, ALauncherThatMayNotUseTmpStillLaunches) {
  RunOptions options;
  options.environment["TMPDIR"] = "/nonexistent";
  EXPECT_EQ(
      launch({"--nproc_per_node=2", "sh", "-c", "[ -n \"$TORCHELASTIC_ERROR_FILE\" ]"}, options).exit_code,
      0);
}

}  // namespace
}  // namespace dtrain::test
