// Launchers that do not fit together: who is missing or wrong is named on every node, and all end at once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "cluster/net/endpoint.h"
#include "tests/launch/nodes.h"
#include "tests/support/process.h"
#include "tests/support/temp_dir.h"

namespace dtrain::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Every launcher ends with `code`, long before the time to join is up, and no worker was started.
void expect_refused(Nodes& nodes, int code) {
  for (int i = 0; i < nodes.count(); ++i) EXPECT_EQ(nodes[i].wait(), code) << i << "\n" << nodes.errors();
  EXPECT_EQ(nodes.lines(), 0);
}

const std::vector<std::string> kProgram = {"sh", "-c", "echo up"};

TEST(Refusals, ANodeThatNeverComesIsNamed) {
  Nodes nodes(0, {});
  const std::vector<std::string> arguments{"--rdzv-conf=join_timeout=6", "sh", "-c", "echo up"};
  nodes.add(0, arguments, "3");
  nodes.add(2, arguments, "3");
  expect_refused(nodes, 4);
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(nodes[i].err(),
                AllOf(HasSubstr("waiting: 2/3 nodes; missing node_rank 1"),
                      HasSubstr("127.0.0.1:" + std::to_string(nodes.port() + 1)), HasSubstr("after 6 s")));
  }
}

TEST(Refusals, AFirstNodeThatNeverComesIsSaid) {
  Nodes nodes(0, {});
  nodes.add(1, {"--rdzv-conf=join_timeout=5.5", "sh", "-c", "echo up"}, "2");
  expect_refused(nodes, 4);
  EXPECT_THAT(nodes[0].err(), AllOf(HasSubstr("no answer yet"), HasSubstr("node_rank 0")));
}

// Launchers whose number may vary cannot tell a stranger from one of theirs that is slow: it is named, and
// they wait.
TEST(Refusals, AStrangerWhereTheyMeetIsNamed) {
  const Listener stranger = listen_on("127.0.0.1", 0, Deadline::after(std::chrono::seconds(5)));
  const RunResult result =
      run({program("dtrain-launch"), "--nnodes=1:2", "--rdzv-conf=join_timeout=5.5",
           "--rdzv-endpoint=127.0.0.1:" + std::to_string(stranger.port()), "sh", "-c", "echo up"});
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("no answer yet"), HasSubstr("pid " + std::to_string(::getpid()) + " ("),
                    HasSubstr("choose another port")));
}

TEST(Refusals, APortThatIsTakenIsAnErrorThatNamesItsOwner) {
  const Listener other = listen_on("127.0.0.1", 0, Deadline::after(std::chrono::seconds(5)));
  const std::string port = std::to_string(other.port());
  const RunResult result =
      run({program("dtrain-launch"), "--nproc_per_node=2", "--master_port=" + port, "sh", "-c", "echo up"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr("--master-port: listen on 127.0.0.1:" + port +
                                          ": the port is taken by pid " + std::to_string(::getpid())),
                                HasSubstr("choose another port")));
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  EXPECT_EQ(result.out, "");
}

TEST(Refusals, ANodeRankUsedTwiceNamesBoth) {
  Nodes nodes(0, {});
  nodes.add(0, kProgram, "3");
  nodes.add(1, kProgram, "3");
  nodes.add(1, kProgram, "3");
  expect_refused(nodes, 2);
  for (int i = 0; i < 3; ++i) EXPECT_THAT(nodes[i].err(), HasSubstr("node_rank 1 is taken")) << i;
}

TEST(Refusals, ANodeRankOutOfRangeIsRefusedOnTheSpot) {
  const RunResult result = run({program("dtrain-launch"), "--nnodes=2", "--node_rank=2",
                                "--master_addr=127.0.0.1", "sh", "-c", "echo up"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("--node-rank: expected 0 to 1 with --nnodes=2, got 2"));
}

struct Mismatch {
  std::string name;
  std::string nnodes = "2";
  std::vector<std::string> arguments;
  std::vector<std::string> both;  ///< what must be said on both nodes
};

class Mismatches : public ::testing::TestWithParam<Mismatch> {};

TEST_P(Mismatches, AreRefusedWithBothValues) {
  Nodes nodes(0, {});
  nodes.add(0, {"--max-restarts=0", "sh", "-c", "echo up"}, "2");
  nodes.add(1, GetParam().arguments, GetParam().nnodes);
  expect_refused(nodes, 2);
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(nodes[i].err(), AllOf(HasSubstr("node_rank 0"), HasSubstr("node_rank 1"))) << i;
    for (const std::string& text : GetParam().both) EXPECT_THAT(nodes[i].err(), HasSubstr(text)) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Refusals, Mismatches,
    ::testing::Values(
        Mismatch{"nnodes", "3", {"sh", "-c", "echo up"}, {"--nnodes differs", "'2'", "'3'"}},
        Mismatch{"range", "1:2", {"sh", "-c", "echo up"}, {"--nnodes differs", "'1:2'"}},
        Mismatch{
            "restarts", "2", {"--max-restarts=5", "sh", "-c", "echo up"}, {"--max-restarts differs", "'5'"}},
        Mismatch{"program", "2", {"bash", "-c", "echo up"}, {"the program differs", "'sh'", "'bash'"}},
        Mismatch{"arguments",
                 "2",
                 {"sh", "-c", "echo down"},
                 {"the program's arguments differs", "'-c echo down'"}}),
    [](const auto& instance) { return instance.param.name; });

TEST(Refusals, AConfigurationFileThatDiffersIsRefused) {
  const TempDir folder;
  const std::string file = folder / "c.json";
  const std::vector<std::string> arguments{"sh", "-c", "echo up", "sh", "--config=" + file};
  Nodes nodes(0, {});
  write_file(file, "{\"lr\": 1}");
  nodes.add(0, arguments, "2");
  ASSERT_TRUE(eventually([&] { return nodes[0].child("dtrain-agent") > 0; }));
  write_file(file, "{\"lr\": 2}");  // as if the other node had another file there
  nodes.add(1, arguments, "2");
  expect_refused(nodes, 2);
  EXPECT_THAT(nodes[0].err(), HasSubstr("the hash of arguments and --config file differs"));
}

TEST(Refusals, AnotherBuildOfDtrainIsRefused) {
  const TempDir folder;
  for (const char* name : {"dtrain-launch", "dtrain-launch-nodes", "dtrain"})
    std::filesystem::copy_file(program(name), folder / name);
  // Still the same program, yet another file: a build from elsewhere.
  std::ofstream(folder / "dtrain", std::ios::app | std::ios::binary) << "another build";
  const std::vector<std::string> arguments{"dtrain", "sampler", "--size=1"};
  Nodes nodes(0, {});
  nodes.add(0, arguments, "2");
  nodes.add(1, arguments, "2", {}, folder / "dtrain-launch");
  expect_refused(nodes, 2);
  for (int i = 0; i < 2; ++i)
    EXPECT_THAT(nodes[i].err(), AllOf(HasSubstr("the build of dtrain differs"), HasSubstr("node_rank 0"),
                                      HasSubstr("node_rank 1")))
        << i;
}

TEST(Refusals, AnotherJobsSecretDoesNotFit) {
  const std::string a(64, 'a'), b(64, 'b');
  Nodes nodes(0, {});
  nodes.add(0, {"--rdzv-conf=join_timeout=3", "sh", "-c", "echo up"}, "2", {{"DTRAIN_TOKEN", a}});
  nodes.add(1, kProgram, "2", {{"DTRAIN_TOKEN", b}});
  expect_refused(nodes, 4);
  EXPECT_THAT(nodes[1].err(), HasSubstr("DTRAIN_TOKEN differs"));
}

// A user without access to this user's files is a stranger on loopback too.
TEST(Refusals, OnLoopbackAnotherUsersLauncherIsKeptOut) {
  Nodes nodes(0, {});
  nodes.add(0, {"--rdzv-conf=join_timeout=3", "sh", "-c", "echo up"}, "2");
  nodes.add(1, {"--insecure", "sh", "-c", "echo up"}, "2");
  expect_refused(nodes, 4);
  EXPECT_THAT(nodes[1].err(), HasSubstr("token"));
}

// In front of a command: this file stands for /etc/hosts.
std::vector<std::string> with_hosts_file(const std::string& file) {
  return {"/usr/bin/unshare", "-m", "sh", "-c", "mount --bind " + file + " /etc/hosts && exec \"$@\"", "sh"};
}

bool can_have_hosts_file(const std::string& file) {
  std::vector<std::string> probe = with_hosts_file(file);
  probe.push_back("true");
  return run(probe).exit_code == 0;
}

// As Debian's installer writes /etc/hosts.
TEST(Refusals, AFirstNodeWhoseNameIsLoopbackIsRefusedAtOnce) {
  const TempDir folder;
  const std::string hosts = folder / "hosts";
  write_file(hosts, "127.0.0.1 localhost\n127.0.1.1 first-node\n");
  if (!can_have_hosts_file(hosts)) GTEST_SKIP() << "no mount namespace can be made here";
  for (const char* option : {"--master_addr=first-node", "--rdzv-endpoint=first-node:29400"}) {
    std::vector<std::string> command = with_hosts_file(hosts);
    command.insert(command.end(), {program("dtrain-launch"), "--nnodes=2", "--node_rank=1", option, "sh"});
    const RunResult result = run(command);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.err,
                AllOf(HasSubstr("the name first-node, which is 127.0.1.1"), HasSubstr("/etc/hosts")));
  }
}

// A node may start before the name service knows node 0.
TEST(Refusals, ANameThatIsNotKnownYetIsWaitedFor) {
  const TempDir folder;
  const std::string hosts = folder / "hosts";
  write_file(hosts, "127.0.0.1 localhost\n");
  if (!can_have_hosts_file(hosts)) GTEST_SKIP() << "no mount namespace can be made here";
  const int port = free_port_pair();
  const auto launcher = [&](int node_rank) {
    std::vector<std::string> command = with_hosts_file(hosts);
    command.insert(command.end(), {program("dtrain-launch"), "--nnodes=2", "--insecure",
                                   "--node_rank=" + std::to_string(node_rank), "--master_addr=late-localhost",
                                   "--master_port=" + std::to_string(port), "sh", "-c", "echo up"});
    return std::make_unique<Running>(command);
  };
  const auto second = launcher(1);
  ASSERT_TRUE(eventually([&] { return second->err().find("late-localhost") != std::string::npos; }));
  write_file(hosts, "127.0.0.1 localhost late-localhost\n");
  const auto first = launcher(0);
  EXPECT_EQ(first->wait(), 0) << first->err();
  EXPECT_EQ(second->wait(), 0) << second->err();
}

TEST(Refusals, ANameThatNobodyKnowsIsNamedAfterTheJoinTimeout) {
  const RunResult result = run({program("dtrain-launch"), "--nnodes=2", "--node_rank=1", "--insecure",
                                "--join-timeout=1", "--master_addr=no-such-host.invalid", "sh"});
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_THAT(result.err, AllOf(HasSubstr("resolve no-such-host.invalid"), HasSubstr("asked")));
}

TEST(Refusals, AnotherJobsNameDoesNotFit) {
  Nodes nodes(0, {});
  nodes.add(0, {"--rdzv-conf=join_timeout=3", "--rdzv-id=one", "sh", "-c", "echo up"}, "2");
  nodes.add(1, {"--rdzv-id=two", "sh", "-c", "echo up"}, "2");
  expect_refused(nodes, 4);
  EXPECT_THAT(nodes[1].err(), HasSubstr("job"));
}

TEST(Refusals, ATakenPortIsSaidAtOnceWithItsOwner) {
  for (const int offset : {0, 1}) {
    const int port = free_port_pair();
    const Listener taken = listen_on("127.0.0.1", static_cast<std::uint16_t>(port + offset),
                                     Deadline::after(std::chrono::seconds(5)));
    const RunResult result =
        run({program("dtrain-launch"), "--nnodes=2", "--node_rank=0", "--master_addr=127.0.0.1",
             "--master_port=" + std::to_string(port), "sh", "-c", "echo up"});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.err, AllOf(HasSubstr("127.0.0.1:" + std::to_string(port + offset)),
                                  HasSubstr("pid " + std::to_string(::getpid()))));
  }
}

TEST(Refusals, EveryInterfaceIsNoAddressOfTheFirstNode) {
  for (const char* option : {"--master_addr=0.0.0.0", "--rdzv-endpoint=[::]:29400"}) {
    const RunResult result =
        run({program("dtrain-launch"), "--nnodes=2", "--node_rank=0", "--insecure", option, "true"});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.err, HasSubstr("stands for every interface"));
  }
}

TEST(Refusals, OffLoopbackASecretIsAskedFor) {
  const RunResult result =
      run({program("dtrain-launch"), "--nnodes=2", "--node_rank=0", "--master_addr=192.0.2.1", "sh"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("openssl rand -hex 32"));
}

TEST(Refusals, ALauncherInstalledByHalfSaysWhatItMisses) {
  const TempDir folder;
  std::filesystem::copy_file(program("dtrain-launch"), folder / "dtrain-launch");
  const RunResult result = run({(folder / "dtrain-launch").string(), "--nnodes=2", "--node_rank=0",
                                "--master_addr=127.0.0.1", "sh", "-c", "echo up"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("dtrain-launch-nodes, which cannot be started: No such file"));
}

TEST(Refusals, AFullDiskUnderStdoutIsSaid) {
  if (::access("/dev/full", W_OK) != 0) GTEST_SKIP() << "there is no /dev/full here";
  for (const char* option : {"--version", "--help"}) {
    const RunResult result =
        run({"sh", "-c", "exec \"$@\" > /dev/full", "sh", program("dtrain-launch"), option});
    EXPECT_EQ(result.exit_code, 6);
    EXPECT_THAT(result.err, HasSubstr("write to stdout: No space left on device"));
  }
}

TEST(Refusals, WhatWasTypedDoesNotReachTheTerminalAsItIs) {
  const RunResult result = run({program("dtrain-launch"), "--\x1b[31mred", "true"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr("--\\x1b[31mred"), ::testing::Not(HasSubstr("\x1b"))));
}

TEST(Refusals, ExplainSaysHowAndStartsNothing) {
  RunOptions options;
  options.environment = {{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}};
  const RunResult result = run({program("dtrain-launch"), "--explain", "sh", "-c", "echo up"}, options);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, AllOf(HasSubstr("openmpi"), HasSubstr("OMPI_COMM_WORLD_SIZE"),
                                HasSubstr("dtrain-mpi-exchange"), ::testing::Not(HasSubstr("up\n"))));
}

}  // namespace
}  // namespace dtrain::test
