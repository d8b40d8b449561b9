// The labs do what the other tests believe of them: hosts reach each other until they are cut, either way;
// Slurm runs tasks on nodes; nothing is left when a lab has stopped.
#include "tests/cluster/labs.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <thread>

#include "runtime/base/clock.h"
#include "tests/support/temp_dir.h"

namespace dtrain::test {
namespace {

// A datagram from `from` to `to`: does it arrive? Each is followed by one from `to` itself, which always
// arrives: after the second of those the receiver, however late it began, has seen what there is. (Bash's
// /dev/udp sends, socat-free; python3 is a test package.)
bool datagram_arrives(const NetnsLab& lab, int from, int to) {
  const TempDir folder;
  const std::string done = (folder / "done").string();
  const std::string receive =
      "import socket,sys\n"
      "s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); s.bind(('0.0.0.0',5000)); s.settimeout(60)\n"
      "got=[]\n"
      "while got.count(b'own\\n')<2: got.append(s.recv(10))\n"
      "print('got' if b'other\\n' in got else 'nothing',flush=True); open(sys.argv[1],'w')\n";
  RunOptions options;
  options.while_running = [&](pid_t) {
    const Deadline deadline = Deadline::after(std::chrono::seconds(60));
    while (!deadline.expired() && !std::filesystem::exists(done)) {
      lab.run(from, {"bash", "-c", "echo other >/dev/udp/" + NetnsLab::address(to) + "/5000; sleep 0.05"});
      lab.run(to, {"bash", "-c", "echo own >/dev/udp/127.0.0.1/5000"});
    }
  };
  const std::string said = lab.run(to, {"python3", "-c", receive, done}, options).out;
  EXPECT_TRUE(said == "got\n" || said == "nothing\n") << said;
  return said == "got\n";
}

TEST(NetnsLab, HostsReachEachOtherUntilOneIsCut) {
  if (const auto why = NetnsLab::unavailable()) GTEST_SKIP() << *why;
  const NetnsLab lab(2);
  EXPECT_EQ(lab.run(1, {"hostname"}).out, "h1\n");
  EXPECT_TRUE(datagram_arrives(lab, 0, 1));
  lab.cut(1, "in");
  EXPECT_FALSE(datagram_arrives(lab, 0, 1));
  EXPECT_TRUE(datagram_arrives(lab, 1, 0));
  lab.heal(1);
  lab.cut(1, "out");
  EXPECT_TRUE(datagram_arrives(lab, 0, 1));
  EXPECT_FALSE(datagram_arrives(lab, 1, 0));
  lab.cut(1, "both");
  EXPECT_FALSE(datagram_arrives(lab, 0, 1));
  lab.heal(1);
  EXPECT_TRUE(datagram_arrives(lab, 1, 0));
}

TEST(NetnsLab, StoppingEndsWhatRunsOnItsHosts) {
  if (const auto why = NetnsLab::unavailable()) GTEST_SKIP() << *why;
  const TempDir folder;
  const std::string started = (folder / "started").string();
  std::optional<NetnsLab> lab(1);
  RunOptions options;
  options.while_running = [&](pid_t) {
    const Deadline deadline = Deadline::after(std::chrono::seconds(20));
    while (!deadline.expired() && !std::filesystem::exists(started))
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    lab.reset();
  };
  const RunResult sleeper =
      run(lab->command(0, {"bash", "-c", "sleep 100 & touch \"$0\"; wait", started}), options);
  EXPECT_TRUE(std::filesystem::exists(started));
  EXPECT_EQ(sleeper.exit_code, 128 + SIGTERM) << sleeper.err;
}

TEST(SlurmLab, RunsTasksOnItsNodesAndLeavesNothing) {
  if (const auto why = SlurmLab::unavailable()) GTEST_SKIP() << *why;
  const TempDir folder;
  std::string configuration;
  {
    std::optional<SlurmLab> started;
    try {
      started.emplace(2, 2);
    } catch (const LabUnavailable& why) {
      GTEST_SKIP() << why.what();
    }
    const SlurmLab& lab = *started;
    const RunResult result =
        lab.run({"srun", "-N2", "-n4", "bash", "-c", "echo $SLURM_PROCID $SLURMD_NODENAME $SLURM_CONF"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_NE(result.out.find("0 node1"), std::string::npos) << result.out;
    EXPECT_NE(result.out.find("3 node2"), std::string::npos) << result.out;
    configuration = result.out.substr(result.out.find("/"));
    configuration.resize(configuration.find('\n'));
    EXPECT_GT(count_marked("SLURM_CONF", configuration), 0);
  }
  EXPECT_EQ(count_marked("SLURM_CONF", configuration), 0);
}

TEST(SlurmLab, WhereSlurmdCannotRunNothingIsLeftAndTheReasonIsSaid) {
  if (const auto why = SlurmLab::unavailable()) GTEST_SKIP() << *why;
  if (run({"unshare", "--mount", "mount", "-t", "tmpfs", "-o", "ro", "none", "/sys/fs/cgroup"}).exit_code !=
      0)
    GTEST_SKIP() << "control groups cannot be hidden here (needs root)";
  const TempDir folder;
  const std::string lab = folder / "slurm";
  RunOptions options = limited_to(std::chrono::seconds(60));
  options.environment["DTRAIN_SLURM_LAB"] = lab;
  const RunResult result =
      run({"unshare", "--mount", "sh", "-c",
           "mount -t tmpfs -o ro none /sys/fs/cgroup && exec bash \"$0\" start 1 1", DTRAIN_LABS "/slurm.sh"},
          options);
  EXPECT_EQ(result.exit_code, 69) << result.out << result.err;
  EXPECT_NE(result.err.find("slurmd cannot run on this machine"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("cgroup"), std::string::npos) << result.err;
  EXPECT_EQ(count_marked("DTRAIN_SLURM_LAB", lab), 0);
  EXPECT_FALSE(std::filesystem::exists(lab));
}

}  // namespace
}  // namespace dtrain::test
