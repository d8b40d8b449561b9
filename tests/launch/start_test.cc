// What workers find when they start: environment, descriptors, input; and what is refused before any starts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <iterator>
#include <set>
#include <sstream>

#include "runtime/base/check.h"
#include "runtime/base/fd.h"
#include "runtime/base/files/needed_libraries.h"
#include "tests/launch/running.h"
#include "tests/support/process.h"
#include "tests/support/slowness.h"
#include "tests/support/temp_dir.h"

namespace dtrain::test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

std::multiset<std::string> lines_of(const std::string& text) {
  std::multiset<std::string> lines;
  std::istringstream in(text);
  std::string line;
  while (std::getline(in, line)) lines.insert(line);
  return lines;
}

std::string host_name() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return std::string(name).substr(0, std::string(name).find('.'));
}

TEST(Start, EveryWorkerHasItsEnvironment) {
  const RunResult result =
      launch({"--nproc_per_node=3", "--role=trainer", "--rdzv-id=job7", "--max-restarts=2", "sh", "-c",
              "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE $NODE_RANK "
              "$ROLE_NAME:$ROLE_RANK/$ROLE_WORLD_SIZE $MASTER_ADDR $TORCHELASTIC_RESTART_COUNT/"
              "$TORCHELASTIC_MAX_RESTARTS $TORCHELASTIC_RUN_ID"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(lines_of(result.out),
            (std::multiset<std::string>{"0/3 0/3 0/1 0 trainer:0/3 127.0.0.1 0/2 job7",
                                        "1/3 1/3 0/1 0 trainer:1/3 127.0.0.1 0/2 job7",
                                        "2/3 2/3 0/1 0 trainer:2/3 127.0.0.1 0/2 job7"}));
}

TEST(Start, ADryRunOfOneOfManyNodesCountsAsIfAllWereEqual) {
  const RunResult result = launch({"--nnodes=2", "--node_rank=1", "--nproc-per-node=2",
                                   "--master_addr=10.0.0.1", "--master_port=1234", "--dry-run", "sh"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr(" RANK=2 "), HasSubstr(" RANK=3 "), HasSubstr("WORLD_SIZE=4"),
                                HasSubstr("10.0.0.1:1234")));
}

TEST(Start, ManyNodesWithoutARankAreRefused) {
  const RunResult result = launch({"--nnodes=2", "/bin/true"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("--node-rank is needed"));
}

TEST(Start, WorkersAgreeOnAFreePortThatIsReallyFree) {
  const RunResult result =
      launch({"--nproc_per_node=2", "bash", "-c",
              "echo $MASTER_PORT; (exec 3<>/dev/tcp/127.0.0.1/$MASTER_PORT) 2>/dev/null && "
              "echo taken; true"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const auto lines = lines_of(result.out);
  ASSERT_EQ(lines.size(), 2u) << result.out;
  EXPECT_EQ(*lines.begin(), *lines.rbegin());
  EXPECT_GT(std::stoi(*lines.begin()), 1023);
}

TEST(Start, AGivenPortIsPassedOn) {
  const std::string port = std::to_string(free_port());
  const RunResult result = launch({"--master_port=" + port, "sh", "-c", "echo $MASTER_PORT"});
  EXPECT_EQ(result.out, port + "\n") << result.err;
}

TEST(Start, ATakenPortIsRefusedWithItsOwner) {
  UniqueFd socket(static_cast<int>(check(Sys{::socket(AF_INET, SOCK_STREAM, 0)}, "socket")));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  check(Sys{::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address)}, "bind");
  check(Sys{::listen(socket.get(), 1)}, "listen");
  socklen_t length = sizeof address;
  ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &length);
  const std::string port = std::to_string(ntohs(address.sin_port));
  const RunResult result =
      launch({"--master_port=" + port, "--nproc_per_node=2", "sh", "-c", "echo started"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("127.0.0.1:" + port), HasSubstr("pid " + std::to_string(::getpid()))));
  EXPECT_EQ(result.out, "");
}

TEST(Start, OmpThreadsAreSetOnlyWhenUnset) {
  RunOptions options;
  options.environment["OMP_NUM_THREADS"] = "5";
  EXPECT_EQ(launch({"sh", "-c", "echo $OMP_NUM_THREADS"}, options).out, "5\n");
  ::unsetenv("OMP_NUM_THREADS");
  EXPECT_EQ(launch({"--nproc_per_node=512", "--dry-run", "sh"}).exit_code, 0);
  EXPECT_THAT(launch({"--nproc_per_node=1", "sh", "-c", "echo $OMP_NUM_THREADS"}).out,
              ContainsRegex("^[1-9]"));
}

TEST(Start, NoDescriptorsLeakIntoWorkers) {
  const std::string list = "ls /proc/self/fd | tr '\\n' ' '; echo";
  const std::string alone = run({"sh", "-c", list}).out;  // what the test itself hands down
  EXPECT_EQ(launch({"--nproc_per_node=4", "sh", "-c", list}).out, alone + alone + alone + alone);
}

// Loading libcrypto takes a millisecond of a start, and only a job of several nodes needs it; {fmt} and C++'s
// own library take half of one, and are compiled in.
TEST(Start, ALauncherOfOneNodeLoadsNoLibraryForOthers) {
  const auto names = needed_libraries(program("dtrain-launch")).names;
  EXPECT_THAT(names, Contains(HasSubstr("libc.so")));
  EXPECT_THAT(names, Not(Contains(ContainsRegex("crypto|ssl|libz|dnnl|mpi|cuda"))));
  // Sanitizers need them as libraries.
  if (kSlowness == 1) {
    EXPECT_THAT(names, Not(Contains(ContainsRegex("fmt|stdc|gcc"))));
  }
}

TEST(Start, InputGoesToRankZeroOnly) {
  RunOptions options;
  options.standard_input = "hello\n";
  const RunResult result = launch({"--nproc_per_node=2", "sh", "-c", "read line; echo $RANK:$line"}, options);
  EXPECT_EQ(lines_of(result.out), (std::multiset<std::string>{"0:hello", "1:"}));
}

TEST(Start, ClosedStandardStreamsDoNoHarm) {
  const RunResult result =
      run({"sh", "-c", "\"$0\" --nproc_per_node=2 sh -c 'echo ok; echo bad >&2' <&- 2>&-",
           program("dtrain-launch")});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, "ok\nok\n");
}

TEST(Start, PythonFilesAndModulesRunUnbuffered) {
  if (run({"sh", "-c", "command -v python3"}).exit_code != 0) GTEST_SKIP() << "no python3 in PATH";
  const TempDir folder;
  write_file(folder / "main.py",
             "import os, sys\nprint(os.environ['RANK'], sys.argv[1:], sys.stdout.write_through)\n");
  RunResult result = launch({"--nproc_per_node=1", (folder / "main.py").string(), "-n", "3"});
  EXPECT_EQ(result.out, "0 ['-n', '3'] True\n") << result.err;
  RunOptions options;
  options.working_directory = folder.path();
  result = launch({"-m", "main", "x"}, options);
  EXPECT_EQ(result.out, "0 ['x'] True\n") << result.err;
}

TEST(Start, BuiltinProgramGetsTokenAndListeningSocketOthersDoNot) {
  const TempDir folder;
  // A launcher finds the `dtrain` beside itself; here that is a script that looks at what it was given.
  std::filesystem::copy_file(program("dtrain-launch"), folder / "dtrain-launch");
  write_file(
      folder / "dtrain",
      "#!/bin/bash\n"
      "echo \"$RANK ${#DTRAIN_TOKEN} ${DTRAIN_STORE_FD:-none} $*\"\n"
      "if [ -n \"$DTRAIN_STORE_FD\" ]; then [[ $(readlink /proc/self/fd/$DTRAIN_STORE_FD) == socket:* ]] || "
      "echo 'not a socket'; fi\n"
      "exec 3<>/dev/tcp/$MASTER_ADDR/$MASTER_PORT || exit 9\n"
      "cd ${0%/*}; touch connected.$RANK; until [ -e connected.1 ]; do sleep 0.02; done\n");
  std::filesystem::permissions(folder / "dtrain", std::filesystem::perms::owner_all);
  RunResult result =
      run({(folder / "dtrain-launch").string(), "--nproc_per_node=2", "dtrain", "train", "--x"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(ContainsRegex("0 64 [0-9]+ train --x\n"), HasSubstr("1 64 none train --x\n"),
                                Not(HasSubstr("not a socket"))));
  result = launch({"sh", "-c", "echo ${DTRAIN_TOKEN:-none} ${DTRAIN_STORE_FD:-none}"});
  EXPECT_EQ(result.out, "none none\n");
}

TEST(Start, ProgramsThatAreNotThereAreRefusedBeforeAnyWorkerStarts) {
  for (const char* name : {"no-such-program", "./no-such-program", "no-such.py", "/tmp"}) {
    const RunResult result = launch({"--nproc_per_node=2", name});
    EXPECT_EQ(result.exit_code, 2) << name;
    EXPECT_THAT(result.err, HasSubstr(name));
    EXPECT_EQ(lines_of(result.err).size(), 1u) << result.err;
  }
}

TEST(Start, AScriptFromWindowsIsToldTheFix) {
  const TempDir folder;
  write_file(folder / "w.sh", "#!/bin/bash\r\necho up\r\n");
  std::filesystem::permissions(folder / "w.sh", std::filesystem::perms::owner_all);
  const RunResult result = launch({"--nproc_per_node=2", (folder / "w.sh").string()});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr("'/bin/bash'"), HasSubstr("carriage return")));
  EXPECT_EQ(lines_of(result.err).size(), 1u) << result.err;
}

TEST(Start, MpirunsOptionsAreAnswered) {
  const RunResult result = launch({"-np", "4", "sh"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("-np: the number of workers on a node is --nproc-per-node=N"));
}

TEST(Start, EachJobHasARunId) {
  const std::vector<std::string> show{"--nproc_per_node=2", "sh", "-c", "echo $TORCHELASTIC_RUN_ID"};
  const auto first = lines_of(launch(show).out), second = lines_of(launch(show).out);
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(*first.begin(), *first.rbegin());
  EXPECT_NE(*first.begin(), *second.begin());
  EXPECT_NE(*first.begin(), "none");
}

TEST(Start, AnUnstartableProgramIsNamed) {
  const TempDir folder;
  write_file(folder / "junk",
             "\x7f"
             "ELF not really");
  std::filesystem::permissions(folder / "junk", std::filesystem::perms::owner_all);
  const RunResult result = launch({"--nproc_per_node=2", (folder / "junk").string()});
  EXPECT_EQ(result.exit_code, 127);
  EXPECT_THAT(result.err, AllOf(HasSubstr("cannot start"), HasSubstr("Exec format error")));
}

TEST(Start, DryRunStartsNothing) {
  const TempDir folder;
  const RunResult result = launch({"--nproc_per_node=2", "--dry-run", "touch", (folder / "file").string()});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, AllOf(HasSubstr("rank 1 (local rank 1) on " + host_name()), HasSubstr("RANK=1")));
  EXPECT_FALSE(std::filesystem::exists(folder / "file"));
}

TEST(Start, VersionHelpAndConfigPrint) {
  EXPECT_THAT(launch({"--version"}).out, ContainsRegex("^dtrain-launch [0-9]+\\.[0-9]+"));
  EXPECT_THAT(launch({"-h"}).out, HasSubstr("--nproc-per-node"));
  RunOptions options;
  options.environment["DTRAIN_MAX_RESTARTS"] = "4";
  EXPECT_THAT(launch({"--nnodes=1", "--print-config"}, options).out,
              ContainsRegex("max-restarts +4 +DTRAIN_MAX_RESTARTS"));
}

TEST(Start, UnknownFlagsAndBadValuesAreOneLineAndCodeTwo) {
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"--nproc_per_nide=2", "x"},
                                                    {"--nproc_per_node=none", "x"},
                                                    {"--config=/nope", "x"}}) {
    const RunResult result = launch(arguments);
    EXPECT_NE(result.exit_code, 0);
    EXPECT_EQ(lines_of(result.err).size(), 1u) << result.err;
    EXPECT_THAT(result.err, ::testing::StartsWith("dtrain-launch: "));
  }
  EXPECT_THAT(launch({"--nproc_per_nide=2", "x"}).err, HasSubstr("did you mean --nproc-per-node?"));
}

TEST(Start, TooManyWorkersForTheDescriptorLimitIsSaid) {
  const RunResult result =
      run({"sh", "-c", "ulimit -n 64; exec \"$0\" --nproc_per_node=100 /bin/true", program("dtrain-launch")});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("ulimit -n"));
}

TEST(Start, ManyWorkers) {
  const RunResult result = launch({"--nproc_per_node=256", "sh", "-c", "echo $RANK"});
  EXPECT_EQ(result.exit_code, 0);
  std::multiset<std::string> ranks;
  for (int rank = 0; rank < 256; ++rank) ranks.insert(std::to_string(rank));
  EXPECT_EQ(lines_of(result.out), ranks);
}

// One thread reads the output of all of them, through two pipes each, and whatever ends it ends them all.
class ManyWorkers : public testing::TestWithParam<int> {};
TEST_P(ManyWorkers, NeedOneThreadAndTwoDescriptorsEach) {
  constexpr std::size_t kWorkers = 256;
  const auto entries = [](const std::string& folder) {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
  };
  Running job(launch_command({"--nproc_per_node=256", "sh", "-c", "echo up; exec sleep 60"}));
  ASSERT_TRUE(eventually([&] { return lines_of(job.out()).count("up") == kWorkers; })) << job.err();
  const std::string launcher = "/proc/" + std::to_string(job.pid());
  EXPECT_EQ(entries(launcher + "/task"), 1U);
  EXPECT_LE(entries(launcher + "/fd"), 2 * kWorkers + 32);
  EXPECT_GE(job.marked().size(), kWorkers);
  job.signal(GetParam());
  EXPECT_EQ(job.wait(), 128 + GetParam()) << job.err();
  EXPECT_TRUE(eventually([&] { return job.marked().empty(); })) << job.marked().size() << " are left";
}
INSTANTIATE_TEST_SUITE_P(Signals, ManyWorkers, testing::Values(SIGTERM, SIGKILL));

TEST(Start, WorkersAreBoundWhenAsked) {
  const RunResult result = launch({"--nproc_per_node=1", "--numa-binding=exclusive", "sh", "-c",
                                   "grep Cpus_allowed_list /proc/self/status"});
  const RunResult own = run({"sh", "-c", "grep Cpus_allowed_list /proc/self/status"});
  EXPECT_EQ(result.out, own.out) << "one worker alone gets all cores";
}

// As under torchrun: otherwise a lost TMPDIR would switch off files that say why workers fail and that they
// save.
TEST(Start, ATmpdirThatIsNotThereIsSaidAndReplaced) {
  RunOptions options;
  options.environment["TMPDIR"] = "/no/such/folder";
  const RunResult result = launch({"sh", "-c",
                                   "touch $DTRAIN_SAVING_FILE && echo {\\\"message\\\": \\\"pump\\\"} > "
                                   "$TORCHELASTIC_ERROR_FILE; rm $DTRAIN_SAVING_FILE; exit 3"},
                                  options);
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("/no/such/folder (TMPDIR): No such file"), HasSubstr("its error: pump")));
}

TEST(Start, NothingIsLeftInTmp) {
  const TempDir folder;
  RunOptions options;
  options.environment["TMPDIR"] = folder.path();
  EXPECT_EQ(launch({"--nproc_per_node=2", "sh", "-c", "test -d $(dirname $TORCHELASTIC_ERROR_FILE)"}, options)
                .exit_code,
            0);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace dtrain::test
