// Real workers against PyTorch's recorded losses, on every backend, and the ways to start against each other.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "tests/support/golden.h"
#include "tests/support/lenet_trace.h"
#include "tests/support/temp_dir.h"
#include "tests/support/training.h"

namespace dtrain::test {
namespace {

std::vector<std::string> arguments_of(const Golden& trace, const std::string& backend) {
  std::vector<std::string> arguments = {"--model",      "lenet", "--dataset",          "fashion-mnist",
                                        "--seed",       "0",     "--log-every",        "1",
                                        "--eval-every", "0",     "--checkpoint-every", "0",
                                        "--max-steps",  "40",    "--backend",          backend};
  arguments.insert(arguments.end(),
                   {"--global-batch-size", trace["global_batch"].dump(), "--lr", trace["lr"].dump(),
                    "--momentum", trace["momentum"].dump(), "--weight-decay", trace["weight_decay"].dump()});
  if (trace["nesterov"].get<bool>()) arguments.push_back("--nesterov");
  return arguments;
}

struct TraceCase {
  std::size_t trace;
  Start start;
  std::string backend;
};

class Traces : public ::testing::TestWithParam<TraceCase> {};

TEST_P(Traces, FollowPyTorch) {
  if (!has_fashion_mnist())
    GTEST_SKIP() << "Fashion-MNIST is not installed (apt install dataset-fashion-mnist)";
  const Golden trace = Golden(std::getenv("DTRAIN_GOLDEN"))["trace_lenet"][GetParam().trace];
  TempDir folder;
  TrainingRun run{.start = GetParam().start,
                  .world = trace["world"],
                  .launcher_arguments = {},
                  .arguments = arguments_of(trace, GetParam().backend),
                  .run_dir = folder / "run",
                  .options = limited_to(std::chrono::seconds(120))};
  const RunResult result = train(run);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto got = losses(run.run_dir);
  const auto expected = trace["losses"].get<std::vector<double>>();
  ASSERT_EQ(got.size(), expected.size());
  // Only the third trace is compared to its end.
  const std::size_t steps = GetParam().trace == 2 ? expected.size() : 15;
  double largest = 0;
  for (std::size_t i = 0; i < steps; ++i) {
    EXPECT_NEAR(got[i], expected[i], lenet_loss_bound(i, trace["lr"])) << "step " << i + 1;
    largest = std::max(largest, std::abs(got[i] - expected[i]));
  }
  RecordProperty("largest_difference", std::to_string(largest));
}

INSTANTIATE_TEST_SUITE_P(
    LeNet, Traces,
    ::testing::Values(TraceCase{0, Start::alone, "auto"}, TraceCase{1, Start::launcher, "tcp"},
                      TraceCase{2, Start::launcher, "tcp"}, TraceCase{3, Start::launcher, "tcp"},
                      TraceCase{1, Start::mpirun, "mpi"}, TraceCase{2, Start::mpirun, "mpi"},
                      TraceCase{3, Start::mpirun, "mpi"}),
    [](const auto& test) { return "trace" + std::to_string(test.param.trace) + "_" + test.param.backend; });

// World 2 sums two numbers, in which order does not matter: the backends agree to the last bit.
TEST(Starts, LauncherAndMpirunGiveTheSameLosses) {
  TempDir folder;
  write_small_dataset(folder / "data", 640, 64);
  std::vector<std::vector<double>> curves;
  for (const Start start : {Start::launcher, Start::mpirun}) {
    TrainingRun run{.start = start,
                    .world = 2,
                    .launcher_arguments = {},
                    .arguments = {"--model", "lenet", "--dataset", "fashion-mnist", "--data-dir",
                                  (folder / "data").string(), "--epochs", "2", "--global-batch-size", "64",
                                  "--lr", "0.05", "--momentum", "0.9", "--log-every", "1"},
                    .run_dir = folder / ("run" + std::to_string(curves.size())),
                    .options = {}};
    const RunResult result = train(run);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    curves.push_back(losses(run.run_dir));
  }
  ASSERT_EQ(curves[0].size(), 20U);
  EXPECT_EQ(curves[0], curves[1]);
}

}  // namespace
}  // namespace dtrain::test
