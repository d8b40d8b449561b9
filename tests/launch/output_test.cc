// Where workers' output goes: whole lines, prefixes, files, filters, a terminal.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <filesystem>
#include <map>
#include <sstream>
#include <thread>

#include "tests/launch/nodes.h"
#include "tests/launch/running.h"
#include "tests/launch/terminal.h"
#include "tests/support/process.h"
#include "tests/support/temp_dir.h"

namespace dtrain::test {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

std::string attempt_file(const TempDir& folder, int rank, const char* name) {
  return folder / ("attempt_0/" + std::to_string(rank) + "/" + name);
}

TEST(Output, LinesOfManyWritersStayWhole) {
  // Each worker writes its lines in two pieces, so that they would mix if the launcher let them.
  const RunResult result =
      launch({"--nproc_per_node=8", "bash", "-c",
              "for i in {1..300}; do printf \"$RANK-$i-%060d\" 0; printf \"=$RANK\\n\"; done"});
  EXPECT_EQ(result.exit_code, 0);
  std::map<std::string, int> count;
  std::istringstream lines(result.out);
  std::string line;
  while (std::getline(lines, line)) {
    const std::string rank = line.substr(0, line.find('-'));
    ++count[rank];
    EXPECT_EQ(line, rank + "-" + std::to_string(count[rank]) + "-" + std::string(60, '0') + "=" + rank);
  }
  ASSERT_EQ(count.size(), 8u);
  for (const auto& [rank, lines_seen] : count) EXPECT_EQ(lines_seen, 300) << rank;
}

TEST(Output, StreamsStayApart) {
  const RunResult result = launch({"--nproc_per_node=2", "sh", "-c", "echo o$RANK; echo e$RANK >&2"});
  EXPECT_THAT(result.out, AllOf(HasSubstr("o0\n"), HasSubstr("o1\n"), Not(HasSubstr("e"))));
  EXPECT_THAT(result.err, AllOf(HasSubstr("e0\n"), HasSubstr("e1\n"), Not(HasSubstr("o"))));
}

TEST(Output, LastLineWithoutNewlineIsNotLost) {
  EXPECT_EQ(launch({"--nproc_per_node=2", "printf", "abc"}).out, "abc\nabc\n");
}

TEST(Output, OfOneWorkerIsPassedByteForByte) {
  const TempDir folder;
  const std::string data = folder / "data", copy = folder / "copy";
  ASSERT_EQ(run({"sh", "-c", "head -c 3000000 /dev/urandom > " + data}).exit_code, 0);
  for (const char* options : {"--nproc_per_node=1", "--nproc_per_node=1 --passthrough"}) {
    const RunResult result = run(
        {"sh", "-c",
         "\"$0\" " + std::string(options) + " cat " + data + " > " + copy + " && cmp " + data + " " + copy,
         program("dtrain-launch")});
    EXPECT_EQ(result.exit_code, 0) << options << result.out << result.err;
  }
}

TEST(Output, AHugeLineAndMuchOutputArriveComplete) {
  const RunResult result = launch({"--nproc_per_node=2", "sh", "-c",
                                   "head -c 200000 /dev/zero | tr '\\0' x; echo; yes line | head -n 100000"});
  std::size_t bytes_of_x = 0, lines = 0;
  for (const char c : result.out) bytes_of_x += c == 'x';
  for (std::size_t at = 0; (at = result.out.find("line\n", at)) != std::string::npos; at += 5) ++lines;
  EXPECT_EQ(bytes_of_x, 400000u);
  EXPECT_EQ(lines, 200000u);
}

// As tqdm has it: states without a newline, and then an exception.
constexpr const char* kBarAndError =
    "for i in 1 2 3 4 5; do printf '\\r%60s %s%%' '' $i >&2; sleep 0.05; done; "
    "[ $RANK = 1 ] || sleep 60; echo >&2; echo 'Error: why' >&2; exit 3";

TEST(Output, BarsOfTwoRanksInAFileAreSeenAtOnceAndAreNoWall) {
  Running job(launch_command(
      {"--nproc_per_node=2", "sh", "-c", "printf '\\rstep 1 of %s' $RANK >&2; exec sleep 60"}));
  EXPECT_TRUE(eventually([&] {
    return job.err().find("step 1 of 0\n") != std::string::npos &&
           job.err().find("step 1 of 1\n") != std::string::npos;
  })) << job.err();
  const RunResult result =
      launch({"--nproc_per_node=2", "sh", "-c",
              "for i in 0 1 2 3 4 5 6 7 8 9; do for j in 0 1 2 3 4 5 6 7 8 9; do printf '\\r%s%s%%' $i $j "
              ">&2; done; done; echo >&2"});
  EXPECT_THAT(result.err, HasSubstr("99%\n"));
  EXPECT_THAT(result.err, Not(HasSubstr("\r")));
  EXPECT_LT(result.err.size(), 100U) << result.err;
}

TEST(Output, TheReportHasTheErrorAndNotTheBarBeforeIt) {
  const RunResult result = launch({"--nproc_per_node=2", "sh", "-c", kBarAndError});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, HasSubstr("dtrain-launch:     Error: why\n"));
  EXPECT_THAT(result.err, HasSubstr(" 5%\ndtrain-launch:     Error"));
  EXPECT_THAT(result.err, Not(HasSubstr("4%")));
}

TEST(Output, ALineWithoutAnEndIsShownWhileItsWorkerWaits) {
  Running job(launch_command({"--nproc_per_node=2", "sh", "-c", "printf \"waiting $RANK\"; exec sleep 60"}));
  EXPECT_TRUE(eventually([&] { return job.out().find("waiting 1") != std::string::npos; })) << job.out();
}

TEST(Output, PythonPrintsAtOnceBelowAWrapperToo) {
  const std::string script = "import os, signal; print('printed'); os.kill(os.getpid(), signal.SIGKILL)";
  for (const char* how : {"exec python3 -c \"$0\"", "python3 -c \"$0\"; exit 9"}) {
    const RunResult result = launch({"--nproc_per_node=2", "sh", "-c", how, script});
    EXPECT_THAT(result.out, HasSubstr("printed\n")) << how;
  }
  RunOptions options;
  options.environment["PYTHONUNBUFFERED"] = "";
  EXPECT_EQ(launch({"--nproc_per_node=2", "sh", "-c", "echo \"<$PYTHONUNBUFFERED>\""}, options).out,
            "<>\n<>\n")
      << "who has set it has a reason";
}

TEST(Output, PrefixNamesHostAndRank) {
  const RunResult result = launch({"--nproc_per_node=2", "--prefix", "sh", "-c", "echo hi"});
  EXPECT_THAT(result.out, AllOf(ContainsRegex("[^ :]+:0: hi\n"), ContainsRegex("[^ :]+:1: hi\n")));
}

TEST(Output, ControlCharactersAreShownNotObeyed) {
  const std::string script = "[ $RANK = 1 ] || printf 'a\\033[31mb\\n\\r1%%\\r2%%\\n'";
  EXPECT_EQ(launch({"--nproc_per_node=2", "sh", "-c", script}).out, "a\\x1b[31mb\n2%\n");
  EXPECT_EQ(launch({"--nproc_per_node=2", "--passthrough", "sh", "-c", script}).out,
            "a\x1b[31mb\n\r1%\r2%\n");
}

TEST(Output, LogDirHoldsOneFilePerRankAndStream) {
  const TempDir folder;
  const RunResult result = launch({"--nproc_per_node=2", "--log_dir=" + folder.path().string(), "sh", "-c",
                                   "echo o$RANK; echo e$RANK >&2"});
  EXPECT_EQ(read_file(attempt_file(folder, 0, "stdout.log")), "o0\n");
  EXPECT_EQ(read_file(attempt_file(folder, 1, "stderr.log")), "e1\n");
  EXPECT_THAT(result.out, HasSubstr("o1\n")) << "still on the console";
}

TEST(Output, RedirectsGoToFilesOnly) {
  const TempDir folder;
  const RunResult result = launch({"--nproc_per_node=2", "--log_dir", folder.path().string(), "-r", "0:3,1:1",
                                   "sh", "-c", "echo o$RANK; echo e$RANK >&2"});
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(result.err, "e1\n");
  EXPECT_EQ(read_file(attempt_file(folder, 0, "stdout.log")), "o0\n");
  EXPECT_EQ(read_file(attempt_file(folder, 0, "stderr.log")), "e0\n");
  EXPECT_FALSE(std::filesystem::exists(attempt_file(folder, 1, "stderr.log")));
}

TEST(Output, TeeGoesToBothWithTorchrunsPrefix) {
  const TempDir folder;
  const RunResult result =
      launch({"--log_dir", folder.path().string(), "-t", "3", "sh", "-c", "echo o; echo e >&2"});
  EXPECT_EQ(result.out, "[default0]:o\n");
  EXPECT_EQ(result.err, "[default0]:e\n");
  EXPECT_EQ(read_file(attempt_file(folder, 0, "stdout.log")), "o\n");
}

TEST(Output, FilterHidesOtherRanks) {
  EXPECT_EQ(launch({"--nproc_per_node=3", "--local-ranks-filter=1", "sh", "-c", "echo $RANK"}).out, "1\n");
}

TEST(Output, ARedirectedWorkersLastWordsAreStillReported) {
  const TempDir folder;
  const RunResult result = launch({"--nproc_per_node=2", "--log_dir", folder.path().string(), "-r", "3", "sh",
                                   "-c", "[ $RANK = 1 ] && { echo reason >&2; exit 3; }; sleep 60"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, AllOf(HasSubstr("rank 1"), HasSubstr("    reason\n"), HasSubstr("stderr.log")));
}

TEST(Output, AnUnwritableLogFolderIsRefused) {
  const RunResult result = launch({"--log_dir=/proc/nope", "/bin/true"});
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("/proc/nope"));
}

TEST(Output, AReaderThatLeavesEndsTheJobLikeAnyPipeline) {
  RunOptions options;
  options.timeout = std::chrono::seconds(20);
  const RunResult result =
      run({"sh", "-c", "\"$0\" --nproc_per_node=2 yes | head -n 1", program("dtrain-launch")}, options);
  EXPECT_EQ(result.out, "y\n");
}

TEST(Output, AFullDiskUnderStdoutLeavesTheWorkersAlone) {
  const RunResult result = run(
      {"sh", "-c",
       "\"$0\" --nproc_per_node=2 sh -c 'for i in 1 2 3 4 5 6; do echo $i || exit 9; sleep 0.1; done; echo "
       "done >&2' > /dev/full",
       program("dtrain-launch")});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("done\ndone\n"),
                                HasSubstr("stdout cannot be written to: No space left on device"),
                                ContainsRegex("stdout: 24 bytes of output were dropped")));
}

// The workers have the launcher's limit, and they alone die of it.
TEST(Output, ALogFileThatMayGrowNoFurtherEndsNoJob) {
  const TempDir folder;
  const std::string script = "head -c 20000 /dev/zero | tr '\\0' x; echo; head -c 20000 /dev/zero > " +
                             (folder / "big").string() + "; test $? = " + std::to_string(128 + SIGXFSZ) +
                             " && exit 7";
  const RunResult result =
      run({"sh", "-c", "ulimit -f 8 && exec \"$@\"", "sh", program("dtrain-launch"), "--nproc_per_node=1",
           "--log-dir=" + folder.path().string(), "-t", "3", "sh", "-c", script});
  EXPECT_EQ(result.exit_code, 7) << result.err;
  EXPECT_THAT(result.err, HasSubstr("File too large"));
}

TEST(LogFolder, AnEarlierJobsLinesAreNotTheFailedWorkersLast) {
  const TempDir folder;
  for (const char* script : {"echo first job >&2; exit 3", "exit 3"}) {
    const RunResult result =
        launch({"--nproc_per_node=1", "--log-dir=" + folder.path().string(), "-r", "3", "sh", "-c", script});
    EXPECT_EQ(result.exit_code, 3);
    const bool first = std::string(script).starts_with("echo");
    EXPECT_EQ(result.err.find("first job") != std::string::npos, first) << result.err;
  }
}

// A log file that nobody reads from.
class FifoAsLog : public ::testing::Test {
 protected:
  FifoAsLog() {
    std::filesystem::create_directories(folder_ / "attempt_0/0");
    EXPECT_EQ(::mkfifo(attempt_file(folder_, 0, "stdout.log").c_str(), 0600), 0);
  }
  std::vector<std::string> command(const std::string& script) const {
    return launch_command({"--log_dir=" + folder_.path().string(), "sh", "-c", script});
  }

  TempDir folder_;
};

TEST_F(FifoAsLog, DoesNotKeepTheLauncherFromItsSignals) {
  Running job(
      command("trap 'echo told >&2; exit 3' TERM; echo up >&2; "
              "while :; do head -c 200000 /dev/zero | tr '\\0' x; echo; done"));
  ASSERT_TRUE(eventually([&] { return job.err() == "up\n"; })) << job.err();
  std::this_thread::sleep_for(std::chrono::seconds(1));  // the FIFO is full long before
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait(std::chrono::seconds(15)), 3) << job.err();
  EXPECT_TRUE(job.marked().empty());
  EXPECT_THAT(job.err(), ContainsRegex("stdout.log: [0-9]+ bytes of output were dropped"));
}

TEST_F(FifoAsLog, LosesOutputButHoldsNoWorkerForLong) {
  const RunResult result = run(command("head -c 5000000 /dev/zero | tr '\\0' x; echo; echo done >&2"));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, AllOf(HasSubstr("done\n"),
                                HasSubstr("stdout.log cannot be written to: it accepts no more output"),
                                ContainsRegex("stdout.log: [0-9]+ bytes of output were dropped")));
  EXPECT_GT(result.out.size(), 5000000U) << "the console misses nothing";
}

// Runs a command line on a terminal of its own and returns what appears there.
std::string on_terminal(const std::vector<std::string>& arguments,
                        const std::map<std::string, std::string>& environment = {}) {
  OnTerminal job(launch_command(arguments), environment);
  job.wait();
  return job.shown();
}

TEST(Output, ProgressOfRankZeroIsOneLineOnATerminal) {
  const std::string shown = on_terminal(
      {"--nproc_per_node=2", "sh", "-c",
       "echo tty=$DTRAIN_STDERR_TTY columns=$DTRAIN_COLUMNS rank=$RANK; sleep 0.1; [ $RANK = 0 ] || exit 0; "
       "printf '\\rstep 1' >&2; sleep 0.2; printf '\\rstep 2' >&2; sleep 0.1; echo a line >&2; sleep 0.1; "
       "printf '\\rstep 3' >&2"});
  EXPECT_THAT(shown, HasSubstr("tty=1 columns=60 rank=0"));
  EXPECT_THAT(shown, HasSubstr("tty= columns= rank=1"));
  EXPECT_THAT(shown, AllOf(HasSubstr("step 1"), HasSubstr("\r\x1b[K"), HasSubstr("step 3\r\n")));
  EXPECT_THAT(shown, HasSubstr("a line\r\n"));
  EXPECT_THAT(shown, Not(HasSubstr("\\r")));
}

TEST(Output, BarsOfSeveralRanksStayReadableOnATerminal) {
  const TempDir folder;
  const std::string go = folder / "go";
  OnTerminal job(launch_command({"--nproc_per_node=3", "sh", "-c",
                                 "printf '\\r%s%%|##' $RANK$RANK >&2; until [ -e " + go +
                                     " ]; do sleep 0.05; done; echo line; printf '\\r100%%\\n' >&2"}));
  EXPECT_TRUE(job.shows("rank 0: 00%|##\r\nrank 1: 11%|##\r\nrank 2: 22%|##")) << job.shown();
  EXPECT_EQ(run({"touch", go}).exit_code, 0);
  EXPECT_EQ(job.wait(), 0) << job.shown();
  EXPECT_TRUE(job.shows("100%\r\n", 3)) << job.shown();
  EXPECT_TRUE(job.shows("line\r\n", 3)) << job.shown();
  EXPECT_THAT(job.shown(), HasSubstr("\r\x1b[K\x1b[A\x1b[K\x1b[A\x1b[K"));
}

TEST(Output, BarsThatDoNotFitAreCutAndCounted) {
  OnTerminal job(launch_command({"--nproc_per_node=6", "sh", "-c", "printf '\\r%090d' 0 >&2; exec sleep 60"}),
                 {}, {6, 40});
  EXPECT_TRUE(job.shows("… 4 more")) << job.shown();
  EXPECT_THAT(job.shown(), HasSubstr("rank 0: " + std::string(31, '0') + "\r\n"));
  EXPECT_THAT(job.shown(), Not(HasSubstr(std::string(40, '0'))));
}

TEST(Output, AQuestionOfTheOnlyWorkerIsSeenBeforeItsAnswer) {
  OnTerminal job(
      launch_command({"--nproc_per_node=1", "sh", "-c", "printf 'name? ' >&2; read n; echo hello $n"}));
  ASSERT_TRUE(job.shows("name? ")) << job.shown();
  job.type("bob\r");
  EXPECT_EQ(job.wait(), 0) << job.shown();
  EXPECT_THAT(job.shown(), HasSubstr("name? bob\r\nhello bob\r\n"));
}

TEST(Output, ColourOnATerminalUnlessNotWanted) {
  const std::vector<std::string> failing{"--nproc_per_node=2", "false"};
  EXPECT_THAT(on_terminal(failing), HasSubstr("\x1b[31mdtrain-launch: rank"));
  EXPECT_THAT(on_terminal(failing, {{"NO_COLOR", "1"}}), Not(HasSubstr("\x1b[31m")));
  EXPECT_THAT(launch(failing).err, Not(HasSubstr("\x1b[")));
}

TEST(Output, ASingleForeignWorkerKeepsTheTerminalAsItsStdout) {
  EXPECT_THAT(on_terminal({"--nproc_per_node=1", "sh", "-c", "test -t 1 && echo terminal"}),
              HasSubstr("terminal"));
  EXPECT_THAT(on_terminal({"--nproc_per_node=2", "sh", "-c", "test -t 1 || echo pipe"}), HasSubstr("pipe"));
}

// Their lines would be mixed without a mark.
TEST(Output, ALogFolderIsOneJobsAtATime) {
  const TempDir folder;
  const std::vector<std::string> command{
      program("dtrain-launch"),
      "--nproc_per_node=2",
      "--log-dir=" + (folder / "logs").string(),
      "sh",
      "-c",
      "echo up; until [ -e " + (folder / "done").string() + " ]; do sleep 0.05; done"};
  Running first(command);
  ASSERT_TRUE(eventually([&] { return first.out() == "up\nup\n"; })) << first.err();
  const RunResult second = run(command);
  EXPECT_EQ(second.exit_code, 2);
  EXPECT_THAT(second.err, AllOf(HasSubstr("--log-dir"), HasSubstr("0/stdout.log is being written by pid "),
                                HasSubstr("another job")));
  EXPECT_EQ(second.out, "");
  write_file(folder / "done", "");
  EXPECT_EQ(first.wait(), 0) << first.err();
  EXPECT_EQ(run(command).exit_code, 0) << "one after the other";
  EXPECT_THAT(read_file(folder / "logs/attempt_0/0/stdout.log"),
              ::testing::MatchesRegex("up\n\ndtrain-launch: job [0-9a-f]+, started [0-9TZ:-]+\nup\n"));
}

// As torchrun has it: lines of all ranks whose stream goes to file and console, each with its mark.
TEST(Filters, LinesThatContainOneOfTheTextsGoToAFileOfTheirOwn) {
  const TempDir folder;
  const std::string script =
      "printf 'good\\nbad %s, a\\n' $RANK; head -c 100000 /dev/zero | tr '\\0' x; printf 'ugly\\n'; echo bad "
      "err >&2";
  const RunResult result = launch({"--nproc_per_node=2", "--log-dir=" + folder.path().string(), "-t", "3",
                                   "--ranks-filter=0,1", "--duplicate-stdout-filters=bad,,x,, a,ad 1",
                                   "--duplicate_stderr_filters=nothing", "sh", "-c", script});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(read_file(folder / "attempt_0/filtered_stdout.log"), "[default1]:bad 1, a\n");
  EXPECT_EQ(read_file(folder / "attempt_0/filtered_stderr.log"), "");
  EXPECT_THAT(read_file(folder / "attempt_0/0/stdout.log"), HasSubstr("good\nbad 0, a\n"));
}

TEST(Filters, NodesThatShareAFolderHaveAFileEach) {
  const TempDir folder;
  Nodes nodes(2, {"--log-dir=" + folder.path().string(), "-t", "3", "--duplicate-stdout-filters=bad", "sh",
                  "-c", "echo bad $RANK"});
  for (int i = 0; i < 2; ++i) EXPECT_EQ(nodes[i].wait(), 0) << nodes.errors();
  for (const char* node : {"0", "1"})
    EXPECT_THAT(read_file(folder / ("attempt_0/filtered_stdout_node" + std::string(node) + ".log")),
                HasSubstr("bad " + std::string(node)));
}

TEST(Filters, OneWorkersDataIsFilteredToo) {
  const TempDir folder;
  const RunResult result = launch({"--nproc_per_node=1", "--log-dir=" + folder.path().string(),
                                   "--duplicate-stdout-filters=b", "sh", "-c", "printf 'a\\nb1\\nc\\nb2'"});
  EXPECT_EQ(result.out, "a\nb1\nc\nb2");
  EXPECT_EQ(read_file(folder / "attempt_0/filtered_stdout.log"), "b1\nb2\n");
}

TEST(Filters, WithoutFilesAreSaidToHaveNoEffect) {
  EXPECT_THAT(launch({"--nproc_per_node=1", "--duplicate-stdout-filters=b", "true"}).err,
              HasSubstr("no effect without -t or --log-dir"));
}

TEST(LogFolder, ASecondJobLeavesAMarkBetweenItsLinesAndTheFirsts) {
  const TempDir folder;
  for (const char* job : {"first", "second"}) {
    for (const char* where : {"-r", "-t"})
      EXPECT_EQ(launch({"--nproc_per_node=1", "--log-dir=" + folder.path().string() + where, where, "1",
                        std::string("--rdzv-id=") + job, "sh", "-c", std::string("printf ") + job})
                    .exit_code,
                0);
  }
  for (const char* where : {"-r", "-t"})
    EXPECT_THAT(read_file(folder.path().string() + where + "/attempt_0/0/stdout.log"),
                ::testing::MatchesRegex("first\ndtrain-launch: job second, started 20[0-9T:-]+Z\nsecond"));
}

}  // namespace
}  // namespace dtrain::test
