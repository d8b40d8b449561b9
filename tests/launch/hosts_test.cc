// --hosts on one machine: a stand-in for ssh runs its command here, and is a process of its own between the
// two ends as ssh is. With Debian's sshd between hosts: tests/cluster/ssh_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "tests/launch/nodes.h"
#include "tests/support/process.h"
#include "tests/support/temp_dir.h"

namespace dtrain::test {
namespace {

using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class Hosts : public ::testing::Test {
 protected:
  void SetUp() override {
    // Hosts that begin with "down" are down. sshd's variable says that both ends are here.
    write_file(
        folder_ / "ssh",
        "#!/bin/sh\n"
        "case $1 in down*) echo 'ssh: connect to host down port 22: No route to host' >&2; exit 255;; esac\n"
        "echo \"$1 $$\" >>" +
            (folder_ / "pids").string() +
            "\n"
            "export SSH_CONNECTION='127.0.0.1 1 127.0.0.1 22' FAKE_HOST=$1\n"
            "shift\n"
            "exec 3<&0\n"
            "sh -c \"$*\" <&3 3<&- &\n"
            "exec 3<&-\n"
            "wait $!\n");
    std::filesystem::permissions(folder_ / "ssh", std::filesystem::perms::owner_all);
  }

  std::vector<std::string> command(const std::string& hosts,
                                   const std::vector<std::string>& arguments) const {
    std::vector<std::string> command = {program("dtrain-launch"), "--hosts=" + hosts,
                                        "--ssh=" + (folder_ / "ssh").string(),
                                        "--master-port=" + std::to_string(port_)};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return command;
  }

  RunResult launch(const std::string& hosts, const std::vector<std::string>& arguments) const {
    return run(command(hosts, arguments), limited_to(seconds(60)));
  }

  pid_t ssh_to(const std::string& host) const {
    std::istringstream lines(read_file(folder_ / "pids"));
    std::string name;
    for (pid_t pid = 0; lines >> name >> pid;) {
      if (name == host) return pid;
    }
    return 0;
  }

  TempDir folder_;
  int port_ = free_port_pair();
};

std::multiset<std::string> lines_of(const std::string& text) {
  std::multiset<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.insert(line);
  return lines;
}

int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

bool all_up(Running& job, int workers) {
  return eventually([&] { return count_of(job.out(), "up") == workers; });
}

TEST_F(Hosts, OneCommandStartsAllOfThem) {
  const RunResult result =
      launch("a:1,b:2", {"sh", "-c", "echo $FAKE_HOST $RANK/$WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE $PWD"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const std::string here = " " + std::filesystem::current_path().string();
  EXPECT_EQ(lines_of(result.out),
            (std::multiset<std::string>{"a 0/3 0/2" + here, "b 1/3 1/2" + here, "b 2/3 1/2" + here}))
      << result.err;
}

// What is in /proc/PID/`file` of any process that can be seen, with spaces for zeros.
std::string all_of_proc(const std::string& file) {
  std::string text;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    if (entry.path().filename().string().find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream in(entry.path() / file, std::ios::binary);
    std::ostringstream content;
    content << in.rdbuf();
    text += content.str() + "\n";
  }
  std::replace(text.begin(), text.end(), '\0', ' ');
  return text;
}

TEST_F(Hosts, TheSecretIsOnNoCommandLine) {
  Running job(command("a,b", {"--nproc-per-node=1", "sh", "-c", "echo up; exec sleep 60"}));
  ASSERT_TRUE(all_up(job, 2)) << job.err();
  std::string secret;
  for (const pid_t pid : job.marked()) {
    std::ifstream in("/proc/" + std::to_string(pid) + "/environ", std::ios::binary);
    for (std::string entry; std::getline(in, entry, '\0');) {
      if (entry.starts_with("DTRAIN_TOKEN=")) secret = entry.substr(entry.find('=') + 1);
    }
  }
  ASSERT_EQ(secret.size(), 64U) << "no launcher has one";
  EXPECT_EQ(all_of_proc("cmdline").find(secret), std::string::npos);
  job.signal(SIGTERM);
  job.wait();
}

TEST_F(Hosts, TrainsDtrainItself) {
  const RunResult result =
      launch("a,b", {"--nproc-per-node=1", "dtrain", "train", "--model", "linear", "--dataset",
                     "synthetic:1x2x1,2,64", "--max-steps", "3", "--run-dir", (folder_ / "run").string()});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("3/3")) << result.err;
}

TEST_F(Hosts, OneCauseIsPrintedOnceWithTheHostAndItsCodeIsTheJobs) {
  const RunResult result =
      launch("a,b,c", {"--nproc-per-node=1", "sh", "-c", "[ $RANK = 1 ] && exit 7; exec sleep 60"});
  EXPECT_EQ(result.exit_code, 7) << result.err;
  EXPECT_EQ(count_of(result.err, "rank 1 (node_rank 1"), 1) << result.err;
  EXPECT_THAT(result.err, ContainsRegex("(a|b|c): dtrain-launch: rank 1 \\(node_rank 1"));
}

TEST_F(Hosts, LinesOfSeveralHostsStayWhole) {
  const RunResult result = launch(
      "a,b",
      {"--nproc-per-node=2", "sh", "-c",
       "i=0; while [ $i -lt 200 ]; do printf 'line of %s ' $RANK; echo and its end; i=$((i+1)); done"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  std::multiset<std::string> expected;
  for (int rank = 0; rank < 4; ++rank) {
    for (int i = 0; i < 200; ++i) expected.insert("line of " + std::to_string(rank) + " and its end");
  }
  EXPECT_EQ(lines_of(result.out), expected);
}

TEST_F(Hosts, AHostThatIsDownEndsTheJobAtOnceAndIsNamed) {
  const RunResult result = launch("a,down1", {"--nproc-per-node=1", "sh", "-c", "echo up"});
  EXPECT_EQ(result.exit_code, 4) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, AllOf(HasSubstr("down1: ssh: connect to host down port 22: No route to host"),
                                HasSubstr("only 1 of 2 hosts can be used, and the job needs 2: down1 (")));
}

TEST_F(Hosts, ASpareTakesThePlaceOfAHostThatIsDown) {
  const RunResult result = launch("a,down1,c", {"--spares=1", "--max-restarts=1", "--nproc-per-node=1", "sh",
                                                "-c", "echo $FAKE_HOST $RANK/$WORLD_SIZE"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(lines_of(result.out), (std::multiset<std::string>{"a 0/2", "c 1/2"})) << result.err;
  EXPECT_THAT(result.err, HasSubstr("host down1 cannot be used: "));
}

TEST_F(Hosts, AFolderThatAHostLacksIsNamed) {
  // The stand-in removes the folder before the command runs, as if the host had none.
  const auto away = folder_ / "only here";
  std::filesystem::create_directory(away);
  RunOptions options = limited_to(seconds(60));
  options.working_directory = away.string();
  write_file(folder_ / "ssh2", "#!/bin/sh\nrmdir '" + away.string() + "' 2>/dev/null\nexec " +
                                   (folder_ / "ssh").string() + " \"$@\"\n");
  std::filesystem::permissions(folder_ / "ssh2", std::filesystem::perms::owner_all);
  auto words = command("a,b", {"--nproc-per-node=1", "true"});
  words[2] = "--ssh=" + (folder_ / "ssh2").string();
  const RunResult result = run(words, options);
  EXPECT_EQ(result.exit_code, 2) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("host a: the folder " + away.string() + " cannot be entered"),
                                HasSubstr("start the job in a folder that all hosts have")));
}

TEST_F(Hosts, ASignalReachesAllWorkersAndTheJobEndsWithIt) {
  Running job(command("a,b", {"--nproc-per-node=1", "sh", "-c", "echo up; exec sleep 60"}));
  ASSERT_TRUE(all_up(job, 2)) << job.err();
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait(), 143) << job.err();
  EXPECT_TRUE(eventually([&] { return job.marked().empty(); }));
}

TEST_F(Hosts, KilledItLeavesNothingOnAnyHost) {
  Running job(command("a,b,c", {"--nproc-per-node=2", "sh", "-c",
                                "setsid sleep 60 & trap '' TERM; echo up; while :; do sleep 1; done"}));
  ASSERT_TRUE(all_up(job, 6)) << job.err();
  job.signal(SIGKILL);
  EXPECT_EQ(job.wait(), 137);
  EXPECT_TRUE(eventually([&] { return job.marked().empty(); }, seconds(10)))
      << job.marked().size() << " processes are left";
}

TEST_F(Hosts, ADeadSshIsALostNode) {
  Running job(command("a,b", {"--nproc-per-node=1", "sh", "-c", "echo up; exec sleep 60"}));
  ASSERT_TRUE(all_up(job, 2)) << job.err();
  ::kill(ssh_to("b"), SIGKILL);
  EXPECT_EQ(job.wait(), 4) << job.err();
  EXPECT_THAT(job.err(), AllOf(HasSubstr("the connection to host b is lost ("),
                               HasSubstr("was killed by SIGKILL"), HasSubstr("node_rank 1")));
  EXPECT_TRUE(eventually([&] { return job.marked().empty(); }, seconds(10)));
}

TEST_F(Hosts, AKilledLauncherIsALostNodeToo) {
  Running job(command("a,b", {"--nproc-per-node=1", "sh", "-c", "echo up $PPID; exec sleep 60"}));
  ASSERT_TRUE(all_up(job, 2)) << job.err();
  // The launcher of b: a child of a proxy, in whose environment is the host.
  pid_t launcher = 0;
  for (const pid_t pid : job.marked()) {
    const std::string id = std::to_string(pid);
    if (read_file("/proc/" + id + "/cmdline").find("--node-rank=1") != std::string::npos &&
        read_file("/proc/" + id + "/comm") == "dtrain-launch\n")
      launcher = pid;
  }
  ASSERT_GT(launcher, 0);
  ::kill(launcher, SIGKILL);
  EXPECT_EQ(job.wait(), 4) << job.err();
  EXPECT_THAT(job.err(), HasSubstr("host b: its launcher was killed by SIGKILL"));
  EXPECT_TRUE(eventually([&] { return job.marked().empty(); }, seconds(10)));
}

TEST_F(Hosts, ASpareTakesThePlaceOfAHostWhoseSshDies) {
  Running job(command(
      "a,b,c", {"--spares=1", "--max-restarts=2", "--lease-timeout=4", "--nproc-per-node=1", "sh", "-c",
                "echo up $FAKE_HOST $RANK; [ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0; exec sleep 60"}));
  ASSERT_TRUE(all_up(job, 2)) << job.err();
  ::kill(ssh_to("b"), SIGKILL);
  EXPECT_EQ(job.wait(seconds(60)), 0) << job.err();
  EXPECT_THAT(job.out(), HasSubstr("up c 1\n")) << job.err();
}

TEST_F(Hosts, DryRunShowsCommandsAndStartsNothing) {
  const RunResult result = launch("a,b:3", {"--dry-run", "dtrain", "train"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr((folder_ / "ssh").string() + " a '"), HasSubstr("--node-rank=1"),
                                HasSubstr("--nproc-per-node=3"), HasSubstr("dtrain train")));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "pids"));
}

}  // namespace
}  // namespace dtrain::test
