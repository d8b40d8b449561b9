// --hosts between hosts with addresses of their own, by OpenSSH's client and server: what is derived from the
// connection, and that nothing is left on the other host whatever ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <set>
#include <sstream>

#include "tests/cluster/labs.h"
#include "tests/launch/running.h"
#include "tests/support/process.h"
#include "tests/support/temp_dir.h"

namespace dtrain::test {
namespace {

using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string sshd_path() {
  const char* chosen = std::getenv("DTRAIN_SSHD");
  return chosen != nullptr ? chosen : "/usr/sbin/sshd";
}

class Ssh : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = NetnsLab::unavailable()) GTEST_SKIP() << *why;
    if (!std::filesystem::exists(sshd_path()))
      GTEST_SKIP() << "no " << sshd_path() << " (apt install openssh-server, or name one with DTRAIN_SSHD)";
    if (run({"sh", "-c", "command -v ssh && command -v ssh-keygen"}).exit_code != 0)
      GTEST_SKIP() << "no ssh or ssh-keygen in PATH (apt install openssh-client)";
    for (const char* key : {"host_key", "user_key"})
      ASSERT_EQ(
          run({"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", (folder_ / key).string()}).exit_code, 0);
    write_file(folder_ / "config",
               "Port 22\nUsePAM no\nStrictModes no\nPermitRootLogin yes\nPidFile none\nHostKey " +
                   (folder_ / "host_key").string() + "\nAuthorizedKeysFile " +
                   (folder_ / "user_key.pub").string() + "\n");
    // sshd wants a user of its own; where the package has made none, a copy of passwd has one in this mount
    // namespace.
    write_file(folder_ / "start",
               "mkdir -p /run/sshd\n"
               "grep -q ^sshd: /etc/passwd || { (cat /etc/passwd; echo "
               "sshd:x:65533:65534::/run/sshd:/bin/false) >\"$1/passwd\"\n"
               "  mount --bind \"$1/passwd\" /etc/passwd; }\n"
               "exec \"$2\" -D -e -f \"$1/config\"\n");
    lab_ = std::make_unique<NetnsLab>(2);
    sshd_ = std::make_unique<Running>(
        lab_->command(1, {"bash", (folder_ / "start").string(), folder_.path().string(), sshd_path()}));
    ASSERT_TRUE(eventually([&] { return sshd_->err().find("listening on 0.0.0.0") != std::string::npos; }))
        << sshd_->err();
  }

  std::vector<std::string> command(const std::string& hosts,
                                   const std::vector<std::string>& arguments) const {
    std::vector<std::string> command = {
        program("dtrain-launch"), "--hosts=" + hosts,
        "--ssh=ssh -T -F none -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null "
        "-o "
        "LogLevel=ERROR -o ConnectTimeout=5 -o ServerAliveInterval=2 -o ServerAliveCountMax=2 -i " +
            (folder_ / "user_key").string()};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return lab_->command(0, command);
  }

  // Two workers, one a host, that stay.
  std::unique_ptr<Running> staying(const std::vector<std::string>& options = {}) const {
    std::vector<std::string> arguments = {"--nproc-per-node=1"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    arguments.insert(arguments.end(),
                     {"sh", "-c", "setsid sleep 90 & echo up on $(hostname); exec sleep 90"});
    auto job = std::make_unique<Running>(
        command("h0,h1", arguments),
        std::map<std::string, std::string>{{"DTRAIN_TEST_JOB", folder_.path().string()}});
    EXPECT_TRUE(eventually([&] {
      return job->out().find("up on h0") != std::string::npos &&
             job->out().find("up on h1") != std::string::npos;
    })) << job->err();
    return job;
  }
  // On both hosts.
  int left() const { return count_marked("DTRAIN_TEST_JOB", folder_.path().string()); }
  void expect_nothing_left() const {
    EXPECT_TRUE(eventually([&] { return left() == 0; }, seconds(15))) << left() << " processes are left";
    // The proxy on the other host carries no mark.
    const RunResult there =
        lab_->run(1, {"sh", "-c", "ip netns pids $(ip netns identify) | xargs -r ps -o args= -p"});
    EXPECT_EQ(there.out.find("--from-stdin"), std::string::npos) << there.out;
  }

  TempDir folder_;
  std::unique_ptr<NetnsLab> lab_;
  std::unique_ptr<Running> sshd_;
};

TEST_F(Ssh, RanksAndTheMastersAddressFollowFromTheList) {
  const std::string show = "echo $(hostname) $RANK/$WORLD_SIZE $MASTER_ADDR";
  const RunResult result = run(command("h0,h1:2", {"sh", "-c", show}), limited_to(seconds(60)));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  std::multiset<std::string> lines;
  std::istringstream in(result.out);
  for (std::string line; std::getline(in, line);) lines.insert(line);
  EXPECT_EQ(lines, (std::multiset<std::string>{"h0 0/3 10.77.0.1", "h1 1/3 10.77.0.1", "h1 2/3 10.77.0.1"}))
      << result.err;

  // Started from a machine that takes no part: the first host is known by the address ssh has found it at.
  const RunResult other =
      run(command("h1", {"--nproc-per-node=1", "sh", "-c", show}), limited_to(seconds(60)));
  EXPECT_EQ(other.out, "h1 0/1 127.0.0.1\n") << other.err;
}

TEST_F(Ssh, TrainsOnBothHosts) {
  const RunResult result = run(
      command("h0,h1", {"--nproc-per-node=1", "dtrain", "train", "--model", "linear", "--dataset",
                        "synthetic:1x2x1,2,64", "--max-steps", "3", "--run-dir", (folder_ / "run").string()}),
      limited_to(seconds(60)));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("3/3")) << result.err;
}

TEST_F(Ssh, KilledItLeavesNothingOnEitherHost) {
  auto job = staying();
  job->signal(SIGKILL);
  job->wait();
  expect_nothing_left();
}

TEST_F(Ssh, ASignalEndsBothHosts) {
  auto job = staying();
  job->signal(SIGTERM);
  EXPECT_EQ(job->wait(), 143) << job->err();
  expect_nothing_left();
}

TEST_F(Ssh, AConnectionThatIsCutIsALostNode) {
  auto job = staying({"--lease-timeout=4"});
  lab_->cut(1);
  EXPECT_EQ(job->wait(seconds(60)), 4) << job->err();
  EXPECT_THAT(job->err(), AllOf(HasSubstr("the connection to host h1 is lost"), HasSubstr("node_rank 1")));
  EXPECT_TRUE(eventually([&] { return left() == 0; }, seconds(15)))
      << "the host that was cut off still works";
}

TEST_F(Ssh, ADeadSshdIsALostNode) {
  auto job = staying();
  sshd_->signal(SIGKILL);  // the listener; its child holds the connection
  run({"sh", "-c",
       "for p in $(ip netns pids t" + std::to_string(::getpid()) +
           "-h1); do case $(cat /proc/$p/comm) in sshd*) kill -9 $p;; esac; done"});
  EXPECT_EQ(job->wait(seconds(60)), 4) << job->err();
  expect_nothing_left();
}

TEST_F(Ssh, AHostThatRefusesTheKeyIsNamed) {
  std::filesystem::remove(folder_ / "user_key.pub");
  const RunResult result = run(command("h0,h1", {"--nproc-per-node=1", "true"}), limited_to(seconds(60)));
  EXPECT_EQ(result.exit_code, 4) << result.err;
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("h1: "), HasSubstr("Permission denied"),
                    HasSubstr("only 1 of 2 hosts can be used, and the job needs 2: h1 (ssh ended with "
                              "exit code 255)")));
}

}  // namespace
}  // namespace dtrain::test
