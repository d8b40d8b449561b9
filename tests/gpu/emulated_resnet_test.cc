// ResNet-18 through the whole GPU path on the emulated machine: PyTorch's losses, the CPU's in every
// precision, the same bits recorded or not, and several ranks on one GPU. DTRAIN_RESNET_LONG=1 runs every
// combination.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>

#include "tests/support/golden.h"
#include "tests/support/temp_dir.h"
#include "tests/support/training.h"

namespace dtrain::test {
namespace {

const bool kLong = std::getenv("DTRAIN_RESNET_LONG") != nullptr;

/// Small images: the network is the same, and a step a hundred times shorter.
TrainingRun resnet(int world, const std::string& precision, const std::filesystem::path& run_dir) {
  return {.start = world == 1 ? Start::alone : Start::launcher,
          .world = world,
          .launcher_arguments = {},
          .arguments = {"--model", "resnet18", "--dataset",
                        kLong ? "synthetic:1x16x16,10,64" : "synthetic:1x8x8,10,64", "--seed", "0",
                        "--global-batch-size", "8", "--max-steps", kLong ? "8" : "6", "--lr", "0.001",
                        "--precision", precision, "--log-every", "1", "--eval-every", "0"},
          .run_dir = run_dir,
          .options = limited_to(std::chrono::seconds(kLong ? 900 : 400))};
}

TrainingRun on_gpus(TrainingRun run, const std::string& graph, int gpus) {
  const std::vector<std::string> own = {"--device", "cuda", "--cuda-graph", graph, "--collective-timeout",
                                        "120"};
  run.arguments.insert(run.arguments.end(), own.begin(), own.end());
  run.options.environment["DTRAIN_EMULATED_GPUS"] = std::to_string(gpus);
  return run;
}

std::vector<double> losses_of(const TrainingRun& run) {
  const RunResult result = train(run);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return losses(run.run_dir);
}

struct Case {
  std::string precision;
  int world;
};

std::vector<Case> cases() {
  if (!kLong) return {{"fp32", 2}, {"bf16", 1}};
  std::vector<Case> all;
  for (const char* const precision : {"fp32", "bf16", "fp16"}) {
    for (const int world : {1, 2, 4}) all.push_back({precision, world});
  }
  return all;
}

class EmulatedResNet18 : public testing::TestWithParam<Case> {};

/// How far the losses of the first steps may be from the CPU's. In low precision the CPU rounds elsewhere.
/// Batch norm over a few values makes much of the last bit: of 72 such batches PyTorch in fp32 is up
/// to 3.4e-6 from itself in float64 in the first loss, so that two who round differently are up to 7e-6
/// apart. From step to step it makes more of it: later losses say nothing.
std::array<double, 2> bounds_of(const std::string& precision) {
  if (precision == "fp32") return {1e-5, 1e-3};
  return kLong ? std::array{2e-2, 5e-2} : std::array{1e-1, 3e-1};
}

TEST_P(EmulatedResNet18, TrainsAsOnTheCpuAndTheSameRecorded) {
  const auto& [precision, world] = GetParam();
  const auto bounds = bounds_of(precision);
  TempDir folder;
  const std::vector<double> cpu = losses_of(resnet(world, precision, folder / "cpu"));
  ASSERT_GE(cpu.size(), 6U);
  std::vector<std::size_t> weights;
  for (const std::string graph : {"off", "on"}) {
    const TrainingRun run = on_gpus(resnet(world, precision, folder / graph), graph, world);
    const std::vector<double> gpu = losses_of(run);
    ASSERT_EQ(gpu.size(), cpu.size());
    for (std::size_t i = 0; i < bounds.size(); ++i) {
      EXPECT_NEAR(gpu[i], cpu[i], bounds[i]) << graph << ", step " << i + 1;
    }
    weights.push_back(final_weights(run.run_dir));
  }
  EXPECT_EQ(weights[0], weights[1]);
}

INSTANTIATE_TEST_SUITE_P(All, EmulatedResNet18, testing::ValuesIn(cases()), [](const auto& test) {
  return test.param.precision + "_world" + std::to_string(test.param.world);
});

class EmulatedResNet18Trace : public testing::TestWithParam<std::size_t> {};

// With the bounds of the CPU's test (tests/parity/resnet/resnet_test.cc). PyTorch in fp32 holds them with one
// of its ways to convolve: others, or another memory format, put the second loss 5e-5 to 2e-4 elsewhere.
TEST_P(EmulatedResNet18Trace, FollowsPyTorch) {
  if (!has_fashion_mnist())
    GTEST_SKIP() << "skipped: Fashion-MNIST is not installed (apt install dataset-fashion-mnist)";
  if (!kLong && GetParam() > 0) GTEST_SKIP() << "skipped: a minute long; DTRAIN_RESNET_LONG=1 runs it";
  const Golden golden(std::getenv("DTRAIN_RESNET_GOLDEN"));
  const Golden trace = golden["traces"][GetParam()];
  TempDir folder;
  const int world = trace["world"];
  TrainingRun run = on_gpus(resnet(world, "fp32", folder / "run"), "off", world);
  run.arguments = {"--model",
                   "resnet18",
                   "--seed",
                   golden["seed"].dump(),
                   "--max-steps",
                   "3",
                   "--global-batch-size",
                   trace["global_batch"].dump(),
                   "--lr",
                   trace["lr"].dump(),
                   "--momentum",
                   trace["momentum"].dump(),
                   "--log-every",
                   "1",
                   "--eval-every",
                   "0",
                   "--checkpoint-every",
                   "0",
                   "--device",
                   "cuda",
                   "--collective-timeout",
                   "600"};
  const std::vector<double> got = losses_of(run), expected = trace["losses"].get<std::vector<double>>();
  ASSERT_EQ(got.size(), 3U);
  EXPECT_NEAR(got[0], expected[0], 1e-6);
  EXPECT_NEAR(got[1], expected[1], 5e-5);
  EXPECT_NEAR(got[2], expected[2], 2e-2);
}

INSTANTIATE_TEST_SUITE_P(Worlds, EmulatedResNet18Trace, testing::Values(0, 1),
                         [](const auto& test) { return "trace" + std::to_string(test.param); });

// NCCL refuses two ranks on one GPU of a host; each rank claims to be a host of its own.
TEST(EmulatedRanks, ThatShareAGpuTrainAsThoseThatDoNot) {
  TempDir folder;
  write_small_dataset(folder / "data", 96, 32);
  std::vector<std::size_t> weights;
  for (const int gpus : {2, 1}) {
    TrainingRun run = on_gpus(resnet(2, "fp32", folder / ("run" + std::to_string(gpus))), "on", gpus);
    run.arguments = {"--model",
                     "lenet",
                     "--data-dir",
                     (folder / "data").string(),
                     "--max-steps",
                     "6",
                     "--global-batch-size",
                     "16",
                     "--eval-every",
                     "0",
                     "--device",
                     gpus == 2 ? "cuda" : "cuda:0",
                     "--backend",
                     "nccl"};
    if (gpus == 1) {
      run.launcher_arguments = {"--no-python", std::getenv("DTRAIN_OWN_HOST")};
      run.program = {std::string(std::getenv("DTRAIN_BIN")) + "/dtrain", "train"};
    }
    const RunResult result = train(run);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    weights.push_back(final_weights(run.run_dir));
  }
  EXPECT_EQ(weights[0], weights[1]);
}

}  // namespace
}  // namespace dtrain::test
