// A PyTorch DDP script, unchanged, under dtrain-launch: on one node and on two, the losses it prints are
// torchrun's to the last digit, and what it says on failing reaches the report. DTRAIN_PEER_PYTHON: a Python
// that has torch.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <thread>

#include "tests/cluster/labs.h"

namespace dtrain::test {
namespace {

std::optional<std::string> peer_python() {
  const char* chosen = std::getenv("DTRAIN_PEER_PYTHON");
  const std::string python = chosen != nullptr ? chosen : "python3";
  if (test::run({python, "-c", "import torch"}, limited_to(std::chrono::seconds(60))).exit_code != 0)
    return std::nullopt;
  return python;
}

class Script : public ::testing::Test {
 protected:
  void SetUp() override {
    python_ = peer_python();
    if (!python_) GTEST_SKIP() << "no Python with torch; name one with DTRAIN_PEER_PYTHON";
  }
  static RunOptions options() {
    RunOptions options = limited_to(std::chrono::seconds(90));
    options.environment = {{"OMP_NUM_THREADS", "1"}, {"DTRAIN_TOKEN", std::string(64, 'b')}};
    return options;
  }
  RunOptions with_python() const {
    RunOptions given = options();
    given.environment["PYTHON_EXEC"] = *python_;
    return given;
  }
  // What rank 0 printed: one line a step.
  static std::string loss_lines(const std::string& out) {
    std::string lines;
    for (std::size_t at = 0; (at = out.find("step ", at)) != std::string::npos;) {
      const std::size_t end = out.find('\n', at);
      lines += out.substr(at, end - at) + "\n";
      at = end;
    }
    return lines;
  }
  std::string under_torchrun() const {
    const RunResult result = test::run(
        {*python_, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=4", script_}, options());
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return loss_lines(result.out);
  }

  std::optional<std::string> python_;
  const std::string script_ = std::string(DTRAIN_PROGRAMS) + "/ddp_train.py";
};

TEST_F(Script, PrintsWhatItPrintsUnderTorchrunOnOneNodeAndOnTwo) {
  const std::string expected = under_torchrun();
  EXPECT_EQ(std::count(expected.begin(), expected.end(), '\n'), 10);
  const RunResult one = test::run({program("dtrain-launch"), "--nproc_per_node=4", script_}, with_python());
  EXPECT_EQ(one.exit_code, 0) << one.err;
  EXPECT_EQ(loss_lines(one.out), expected);

  if (const auto why = NetnsLab::unavailable()) GTEST_SKIP() << "one node only: " << *why;
  const NetnsLab lab(2);
  RunResult results[2];
  const auto start = [&](int node) {
    RunOptions given = with_python();
    given.environment["GLOO_SOCKET_IFNAME"] = "eth0";
    results[node] = lab.run(
        node,
        {program("dtrain-launch"), "--nnodes=2", "--node_rank=" + std::to_string(node),
         "--master_addr=" + NetnsLab::address(0), "--master_port=29500", "--nproc_per_node=2", script_},
        given);
  };
  std::thread second([&] { start(1); });
  start(0);
  second.join();
  EXPECT_EQ(results[0].exit_code, 0) << results[0].err;
  EXPECT_EQ(results[1].exit_code, 0) << results[1].err;
  EXPECT_EQ(loss_lines(results[0].out), expected);
}

// @record of torchelastic writes the exception into TORCHELASTIC_ERROR_FILE.
TEST_F(Script, TheExceptionOfTheFirstToFailIsInTheReport) {
  const RunResult result =
      test::run({program("dtrain-launch"), "--nproc_per_node=2", script_, "--fail"}, with_python());
  EXPECT_EQ(result.exit_code, 1);
  const std::size_t report = result.err.find("dtrain-launch: rank 1");
  ASSERT_NE(report, std::string::npos) << result.err;
  EXPECT_NE(result.err.find("the data of step 5 cannot be used", report), std::string::npos) << result.err;
}

}  // namespace
}  // namespace dtrain::test
