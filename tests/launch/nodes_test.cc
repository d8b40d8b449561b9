// Two and more launchers that meet on loopback: what workers find, one cause and one exit code on every node,
// signals, restarts, nodes that are lost and come back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

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

std::set<std::string> lines_of(const std::string& text) {
  std::set<std::string> lines;
  std::istringstream in(text);
  std::string line;
  while (std::getline(in, line)) lines.insert(line);
  return lines;
}

// Every launcher has ended with `code`, and nothing is left of any.
void expect_ends(Nodes& nodes, int code) {
  for (int i = 0; i < nodes.count(); ++i) EXPECT_EQ(nodes[i].wait(), code) << i << "\n" << nodes.errors();
  EXPECT_TRUE(eventually([&] { return nodes.marked() == 0; })) << "something is left";
}

const std::vector<std::string> kStay = {"--nproc_per_node=2", "sh", "-c", "echo up; exec sleep 60"};

TEST(Nodes, WorkersFindRanksAndOnePort) {
  Nodes nodes(0, {}, "2");
  const std::string show =
      "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE "
      "$TORCHELASTIC_RESTART_COUNT $MASTER_ADDR:$MASTER_PORT";
  nodes.add(0, {"--nproc_per_node=1", "sh", "-c", show}, "2");
  nodes.add(1, {"--nproc_per_node=2", "sh", "-c", show}, "2");  // nodes may differ
  expect_ends(nodes, 0);
  const std::string master = " 0 127.0.0.1:" + std::to_string(nodes.port());
  EXPECT_EQ(nodes[0].out(), "0/3 0/1 0/2" + master + "\n");
  EXPECT_EQ(lines_of(nodes[1].out()),
            (std::set<std::string>{"1/3 0/2 1/2" + master, "2/3 1/2 1/2" + master}));
}

TEST(Nodes, AllNodesHaveTheJobsRunId) {
  const auto ids_of = [] {
    Nodes nodes(2, {"sh", "-c", "echo $TORCHELASTIC_RUN_ID"});
    expect_ends(nodes, 0);
    EXPECT_EQ(nodes[0].out(), nodes[1].out());
    return nodes[0].out();
  };
  EXPECT_NE(ids_of(), ids_of());
}

TEST(Nodes, AForeignProgramFindsThePortFree) {
  Nodes nodes(2, {"bash", "-c",
                  "[ $RANK = 0 ] || exit 0; (exec 3<>/dev/tcp/$MASTER_ADDR/$MASTER_PORT) 2>/dev/null && "
                  "exit 9; true"});
  expect_ends(nodes, 0);
}

TEST(Nodes, NodesWithoutNumbersGetThem) {
  const int port = free_port_pair();
  const std::vector<std::string> command{program("dtrain-launch"),
                                         "--nnodes=2",
                                         "--rdzv-endpoint=127.0.0.1:" + std::to_string(port),
                                         "sh",
                                         "-c",
                                         "echo $RANK of $WORLD_SIZE at $MASTER_PORT"};
  Running first(command), second(command);
  EXPECT_EQ(first.wait(), 0) << first.err();
  EXPECT_EQ(second.wait(), 0) << second.err();
  EXPECT_THAT(first.out() + second.out(), AllOf(HasSubstr("0 of 2 at "), HasSubstr("1 of 2 at ")));
  EXPECT_EQ(first.out().substr(7), second.out().substr(7)) << "one port for all";
}

TEST(Nodes, TheFirstFailureIsEveryNodesReportAndCode) {
  Nodes nodes(3, {"--nproc_per_node=2", "sh", "-c",
                  "echo up; [ $RANK = 3 ] && { echo broken pump >&2; exit 7; }; exec sleep 60"});
  expect_ends(nodes, 7);
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(nodes[i].err(), AllOf(ContainsRegex("rank 3 \\(node_rank 1, host [^,]*, local rank 1, pid "
                                                    "[0-9]+\\) failed first: exit code 7"),
                                      HasSubstr("    broken pump")));
    EXPECT_TRUE(nodes[i].err().ends_with("    broken pump\n")) << "the report is the last thing said";
  }
}

TEST(Nodes, ASignalThatKillsAWorkerIsNamedEverywhere) {
  Nodes nodes(2, {"sh", "-c", "[ $RANK = 0 ] && { sleep 0.2; kill -SEGV $$; }; exec sleep 60"});
  expect_ends(nodes, 128 + SIGSEGV);
  EXPECT_THAT(nodes[1].err(), AllOf(HasSubstr("rank 0 (node_rank 0, "), HasSubstr("SIGSEGV")));
}

TEST(Nodes, ALauncherThatIsKilledEndsTheJob) {
  Nodes nodes(2, kStay);
  ASSERT_TRUE(eventually([&] { return nodes.lines() == 4; })) << nodes.errors();
  nodes[1].signal(SIGKILL);
  EXPECT_EQ(nodes[0].wait(), 4) << nodes.errors();
  EXPECT_THAT(nodes[0].err(), AllOf(HasSubstr("node_rank 1 "), HasSubstr("its launcher was killed")));
  EXPECT_TRUE(eventually([&] { return nodes.marked() == 0; }));
}

TEST(Nodes, TheFirstLauncherThatIsKilledEndsTheJobToo) {
  Nodes nodes(2, kStay);
  ASSERT_TRUE(eventually([&] { return nodes.lines() == 4; })) << nodes.errors();
  nodes[0].signal(SIGKILL);
  EXPECT_EQ(nodes[1].wait(), 4) << nodes.errors();
  EXPECT_THAT(nodes[1].err(), HasSubstr("node_rank 0 "));
  EXPECT_TRUE(eventually([&] { return nodes.marked() == 0; }));
}

class NodesSignal : public ::testing::TestWithParam<int> {};

TEST_P(NodesSignal, OnAnyLauncherReachesAllWorkers) {
  Nodes nodes(2, kStay);
  ASSERT_TRUE(eventually([&] { return nodes.lines() == 4; })) << nodes.errors();
  nodes[1].signal(GetParam());
  expect_ends(nodes, 128 + GetParam());
  EXPECT_THAT(nodes[0].err(), HasSubstr("got signal " + std::to_string(GetParam())));
}

INSTANTIATE_TEST_SUITE_P(Nodes, NodesSignal, ::testing::Values(SIGINT, SIGTERM));

TEST(Nodes, TheSecondSignalEndsAllAtOnce) {
  Nodes nodes(2, {"sh", "-c", "trap '' TERM; echo up; while :; do sleep 60; done"});
  ASSERT_TRUE(eventually([&] { return nodes.lines() == 2; })) << nodes.errors();
  nodes[0].signal(SIGTERM);
  EXPECT_EQ(nodes[1].wait(std::chrono::milliseconds(500)), -1) << "the workers do not want to end";
  nodes[0].signal(SIGTERM);
  expect_ends(nodes, 128 + SIGTERM);
}

TEST(Nodes, WorkersThatAskToBeStartedAgainGiveEveryNodeTheirCode) {
  Nodes nodes(2, {"sh", "-c", "trap 'exit 75' TERM; echo up; while :; do sleep 0.05; done"});
  ASSERT_TRUE(eventually([&] { return nodes.lines() == 2; })) << nodes.errors();
  nodes[0].signal(SIGTERM);
  expect_ends(nodes, 75);
}

TEST(Nodes, ASignalWhileWaitingEndsTheLauncher) {
  Nodes nodes(0, {});
  Running& alone = nodes.add(1, {"sh"}, "2");  // node 0 never comes
  EXPECT_EQ(alone.wait(std::chrono::milliseconds(300)), -1);
  alone.signal(SIGTERM);
  EXPECT_EQ(alone.wait(), 128 + SIGTERM) << alone.err();
}

TEST(Nodes, RestartsAreCountedForTheJob) {
  Nodes nodes(2,
              {"--max-restarts=2", "sh", "-c",
               "echo $RANK:$TORCHELASTIC_RESTART_COUNT; [ $TORCHELASTIC_RESTART_COUNT = $RANK ] && exit 9; "
               "[ $TORCHELASTIC_RESTART_COUNT = 2 ] && exit 0; exec sleep 60"});
  expect_ends(nodes, 0);
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(nodes[i].out(), HasSubstr(std::to_string(i) + ":2\n"));
    EXPECT_THAT(nodes[i].err(),
                AllOf(HasSubstr("restart 1 of 2"), HasSubstr("restart 2 of 2"),
                      ContainsRegex("rank 0 .*exit code 9"), ContainsRegex("rank 1 .*exit code 9")));
  }
}

TEST(Nodes, AnElasticJobGoesOnWithoutALostNodeAndTakesItInAgain) {
  // Foreign workers end on SIGTERM; the job ends when the file is there.
  const TempDir folder;
  const std::vector<std::string> arguments{
      "--max-restarts=3", "--rdzv-conf=last_call_timeout=60", "sh", "-c",
      "echo $RANK/$WORLD_SIZE; until [ -e " + (folder / "done").string() + " ]; do sleep 0.05; done"};
  Nodes nodes(2, arguments, "1:2");
  ASSERT_TRUE(eventually([&] { return nodes.lines() == 2; })) << nodes.errors();
  nodes[1].signal(SIGKILL);
  ASSERT_TRUE(eventually([&] { return nodes[0].out().find("0/1\n") != std::string::npos; }))
      << nodes.errors();
  Running& back = nodes.add(1, arguments, "1:2");
  ASSERT_TRUE(eventually([&] { return back.out().find("1/2\n") != std::string::npos; })) << nodes.errors();
  write_file(folder / "done", "");
  EXPECT_EQ(nodes[0].wait(), 0) << nodes.errors();
  EXPECT_EQ(back.wait(), 0) << nodes.errors();
  EXPECT_EQ(nodes[0].out(), "0/2\n0/1\n0/2\n");
  EXPECT_THAT(nodes[0].err(), HasSubstr("its launcher was killed"));
}

}  // namespace
}  // namespace dtrain::test
