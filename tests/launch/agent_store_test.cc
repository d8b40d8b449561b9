// --agent-store: PyTorch's TCPStore, served by the launcher of node 0. What needs PyTorch runs where
// DTRAIN_PEER_PYTHON names a Python that has it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "tests/launch/nodes.h"
#include "tests/support/process.h"
#include "tests/support/temp_dir.h"

namespace dtrain::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// As a client says hello, sets the key "k" and asks how many keys there are.
const std::string kConnect =
    "exec 3<>/dev/tcp/$MASTER_ADDR/$MASTER_PORT || exit 9; printf '\\0\\xce\\xf7\\x85\\x3c' >&3; ";
const std::string kSet = "printf '\\x01\\x01\\0\\0\\0\\0\\0\\0\\0k\\x01\\0\\0\\0\\0\\0\\0\\0v' >&3; ";
const std::string kCount = "printf '\\x07' >&3; echo $(head -c 8 <&3 | od -An -tu1); ";
const std::string kOneKey = "1 0 0 0 0 0 0 0\n", kNoKey = "0 0 0 0 0 0 0 0\n";

TEST(AgentStore, OutlivesRankZero) {
  const RunResult result =
      launch({"--agent-store", "--nproc_per_node=1", "--max-restarts=1", "bash", "-c",
              "echo $TORCHELASTIC_USE_AGENT_STORE; " + kConnect +
                  "[ $TORCHELASTIC_RESTART_COUNT = 1 ] || { " + kSet + kCount + " kill -9 $$; }; " + kCount});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "True\n" + kOneKey + "True\n" + kNoKey) << "on the same port, and empty again";
}

TEST(AgentStore, IsServedByTheFirstOfManyNodes) {
  const TempDir folder;
  const std::string set = (folder / "set").string();
  Nodes nodes(2, {"--agent-store", "bash", "-c",
                  kConnect + "if [ $RANK = 1 ]; then " + kSet + kCount + "touch " + set +
                      "; else until [ -e " + set + " ]; do sleep 0.05; done; " + kCount + "fi"});
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(nodes[i].wait(), 0) << nodes.errors();
    EXPECT_EQ(nodes[i].out(), kOneKey);
  }
}

// What it held was in the memory of the launcher that is gone.
TEST(AgentStore, StartsEmptyWhereAnotherMachineBecomesNodeZero) {
  const TempDir folder;
  const std::string set = (folder / "set").string();
  const std::vector<std::string> arguments{"--spares=1",
                                           "--max-restarts=1",
                                           "--lease-timeout=2",
                                           "--agent-store",
                                           "bash",
                                           "-c",
                                           kConnect + "[ $TORCHELASTIC_RESTART_COUNT = 1 ] && { " + kCount +
                                               "exit 0; }; if [ $RANK = 0 ]; then " + kSet + kCount +
                                               "touch " + set + "; fi; sleep 60"};
  Nodes nodes(0, {});
  // The spare first, so that it may lead as soon as workers run.
  Running& spare = nodes.add(2, arguments, "2");
  Running& first = nodes.add(0, arguments, "2");
  ASSERT_TRUE(eventually([&] { return spare.err().find("will replace the next node") != std::string::npos; },
                         std::chrono::seconds(60)))
      << nodes.errors();
  Running& second = nodes.add(1, arguments, "2");
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(set); }, std::chrono::seconds(60)))
      << nodes.errors();
  std::vector<pid_t> all = first.marked();
  all.push_back(first.pid());
  for (const pid_t pid : all) ::kill(pid, SIGKILL);
  for (Running* launcher : {&spare, &second}) EXPECT_EQ(launcher->wait(), 0) << nodes.errors();
  EXPECT_EQ(spare.out(), kNoKey) << nodes.errors();
}

TEST(AgentStore, NodesMustAgree) {
  Nodes nodes(0, {});
  nodes.add(0, {"--agent-store", "sh", "-c", "echo up"}, "2");
  nodes.add(1, {"sh", "-c", "echo up"}, "2");
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(nodes[i].wait(), 2) << nodes.errors();
    EXPECT_THAT(nodes[i].err(),
                AllOf(HasSubstr("--agent-store differs: "), HasSubstr("'given' on node_rank 0")));
  }
}

TEST(AgentStore, IsAskedForByTorchrunsVariable) {
  const std::vector<std::string> look{"bash", "-c",
                                      "echo ${TORCHELASTIC_USE_AGENT_STORE:-unset}; " + kConnect + kCount};
  RunOptions options;
  options.environment["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  EXPECT_EQ(launch(look, options).out, "True\n" + kNoKey);
  options.environment["RANK"] = "0";  // of a worker of torchrun's
  const RunResult inner = launch(look, options);
  EXPECT_EQ(inner.out, "unset\n");
  EXPECT_EQ(inner.exit_code, 9);
}

TEST(AgentStore, IsNotForProgramsThatUseDtrain) {
  const RunResult result = launch({"--agent-store", "dtrain", "sampler", "--size=1"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("--agent-store: expected a program that uses PyTorch"));
}

TEST(AgentStore, IsProposedWhereItIsMissing) {
  const std::string hint = "--agent-store has the launcher serve it";
  const RunResult missed = launch({"bash", "-c", kConnect});
  EXPECT_EQ(missed.exit_code, 9);
  EXPECT_THAT(missed.err, AllOf(HasSubstr("refused"), HasSubstr(hint), HasSubstr("rank 0 opens that port")));
  EXPECT_THAT(launch({"bash", "-c", "echo broken pump >&2; exit 9"}).err, Not(HasSubstr(hint)));
  EXPECT_THAT(launch({"--agent-store", "bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/1; exit 9"}).err,
              Not(HasSubstr(hint)));
}

// Every rank is a client, and each start finds the port served and makes a group, whose keys are those of the
// start before.
const std::string kScript = R"(
import datetime, os, subprocess, sys
import torch, torch.distributed as dist
rank, attempt = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
client = lambda: dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), None, False,
                               datetime.timedelta(seconds=60), wait_for_workers=False)
store = client()
key = f"{attempt}/"
if rank == 0:
    store.set(key + "set", "v")
    assert store.compare_set(key + "set", "v", "w") == b"w"
    store.append(key + "set", "x")
    store.multi_set([key + "a", key + "b"], ["1", "2"])
    store.queue_push(key + "q", "item")
store.wait([key + "set", key + "a", key + "b"])
assert store.multi_get([key + "a", key + "b"]) == [b"1", b"2"]
if rank == 1:
    assert store.queue_pop(key + "q") == b"item"
    assert store.check([key + "none"]) is False
    try:
        store.wait([key + "none"], datetime.timedelta(milliseconds=200))
        raise SystemExit("that key is not there")
    except dist.DistStoreError:
        pass
    assert store.delete_key(key + "none") is False
# Once in a start: a default group that is made again has the keys of the first, in torchrun's store as well.
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
tensor = torch.tensor([rank + 1.0])
dist.all_reduce(tensor)
assert tensor.item() == 3
store.add(key + "seen", 1)
if attempt < 2:
    if rank == 0:
        while store.add(key + "seen", 0) < 2:
            pass
        os.kill(os.getpid(), 9)
    store.wait([key + "never"], datetime.timedelta(seconds=600))
assert store.check([f"{attempt - 1}/seen"]) is False, "kept from the start before"
dist.destroy_process_group()
print("rank", rank, "done", flush=True)
)";

TEST(AgentStore, ServesPyTorch) {
  const char* const python = std::getenv("DTRAIN_PEER_PYTHON");
  if (python == nullptr) GTEST_SKIP() << "DTRAIN_PEER_PYTHON names no Python that has torch";
  const TempDir folder;
  write_file(folder / "script.py", kScript);
  RunOptions options = limited_to(std::chrono::seconds(200));
  options.environment["PYTHON_EXEC"] = python;
  const RunResult result =
      launch({"--agent-store", "--nproc_per_node=2", "--max-restarts=2", folder / "script.py"}, options);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("rank 0 done\n"), HasSubstr("rank 1 done\n")));
}

}  // namespace
}  // namespace dtrain::test
