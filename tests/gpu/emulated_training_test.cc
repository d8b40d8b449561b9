// Whole training runs on the emulated machine: PyTorch's losses over NCCL, every precision with and without
// graphs, and what a run says of itself.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>

#include "tests/launch/trained.h"
#include "tests/support/golden.h"
#include "tests/support/lenet_trace.h"
#include "tests/support/temp_dir.h"
#include "tests/support/training.h"

namespace dtrain::test {
namespace {

/// `gpus` on one machine, everything that CUDA leaves open in the order of `seed`.
TrainingRun on_gpus(int gpus, int world, int seed, const std::filesystem::path& run_dir) {
  TrainingRun run{.start = Start::launcher,
                  .world = world,
                  .launcher_arguments = {"--emulated-gpus=" + std::to_string(gpus)},
                  .arguments = {"--device", "cuda", "--log-every", "1"},
                  .run_dir = run_dir,
                  .options = limited_to(std::chrono::seconds(400))};
  run.options.environment["DTRAIN_EMULATED_SEED"] = std::to_string(seed);
  return run;
}

void add(TrainingRun& run, const std::vector<std::string>& arguments) {
  run.arguments.insert(run.arguments.end(), arguments.begin(), arguments.end());
}

class EmulatedTraces : public testing::TestWithParam<int> {};

TEST_P(EmulatedTraces, FollowPyTorch) {
  if (!has_fashion_mnist())
    GTEST_SKIP() << "skipped: Fashion-MNIST is not installed (apt install dataset-fashion-mnist)";
  constexpr std::size_t kSteps = 9;  // before rounding decides between curves
  const int number = GetParam();
  const Golden trace = Golden(std::getenv("DTRAIN_GOLDEN"))["trace_lenet"][static_cast<std::size_t>(number)];
  TempDir folder;
  TrainingRun run = on_gpus(4, trace["world"], number, folder / "run");
  add(run, {"--model", "lenet", "--seed", "0", "--max-steps", std::to_string(kSteps), "--checkpoint-every",
            "0", "--global-batch-size", trace["global_batch"].dump(), "--lr", trace["lr"].dump(),
            "--momentum", trace["momentum"].dump(), "--weight-decay", trace["weight_decay"].dump()});
  if (trace["nesterov"].get<bool>()) add(run, {"--nesterov"});
  const RunResult result = train(run);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto got = losses(run.run_dir);
  ASSERT_EQ(got.size(), kSteps);
  const auto expected = trace["losses"].get<std::vector<double>>();
  for (std::size_t i = 0; i < kSteps; ++i)
    EXPECT_NEAR(got[i], expected[i], lenet_loss_bound(i, trace["lr"])) << "step " << i + 1;
}

INSTANTIATE_TEST_SUITE_P(LeNet, EmulatedTraces, testing::Range(0, 4));

struct Case {
  std::string precision;
  int world;
};

class EmulatedTraining : public testing::TestWithParam<Case> {};

// Two epochs of five steps, the last of each of another shape, with evaluations between.
TEST_P(EmulatedTraining, IsTheSameToTheLastBitRecordedOrNotInAnyOrder) {
  TempDir folder;
  write_small_dataset(folder / "data", 272, 64);
  std::vector<std::size_t> weights;
  std::vector<std::vector<double>> curves;
  const std::pair<const char*, int> ways[] = {{"off", 0}, {"on", 0}, {"on", 7}, {"off", 8}};
  for (const auto& [graph, seed] : ways) {
    TrainingRun run =
        on_gpus(4, GetParam().world, seed, folder / (std::string("run-") + graph + std::to_string(seed)));
    add(run, {"--model", "lenet", "--data-dir", (folder / "data").string(), "--epochs", "2",
              "--global-batch-size", "64", "--lr", "0.05", "--momentum", "0.9", "--precision",
              GetParam().precision, "--cuda-graph", graph});
    const RunResult result = train(run);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    weights.push_back(final_weights(run.run_dir));
    curves.push_back(losses(run.run_dir));
    EXPECT_EQ(weights.back(), weights.front()) << "graph " << graph << ", seed " << seed;
    EXPECT_EQ(curves.back(), curves.front()) << "graph " << graph << ", seed " << seed;
  }
  EXPECT_EQ(curves[0].size(), 10U);
  EXPECT_LT(curves[0].back(), curves[0].front());
}

INSTANTIATE_TEST_SUITE_P(All, EmulatedTraining,
                         testing::Values(Case{"fp32", 1}, Case{"fp32", 4}, Case{"bf16", 1}, Case{"bf16", 2},
                                         Case{"fp16", 2}),
                         [](const auto& test) {
                           return test.param.precision + "_world" + std::to_string(test.param.world);
                         });

// An evaluation leaves low-precision copies of the weights behind; with one full step an epoch the fourth is
// recorded right after one, and must not keep them.
TEST(EmulatedTraining, ARecordingAfterAnEvaluationConvertsItsOwnWeights) {
  TempDir folder;
  write_small_dataset(folder / "data", 64, 32);
  std::vector<std::size_t> weights;
  for (const std::string graph : {"off", "on"}) {
    TrainingRun run = on_gpus(1, 1, 3, folder / ("run-" + graph));
    add(run,
        {"--model", "lenet", "--data-dir", (folder / "data").string(), "--epochs", "8", "--global-batch-size",
         "64", "--precision", "bf16", "--lr", "0.05", "--cuda-graph", graph, "--eval-every", "1"});
    const RunResult result = train(run);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    weights.push_back(final_weights(run.run_dir));
  }
  EXPECT_EQ(weights[0], weights[1]);
}

// What is drawn for a batch travels with it, so that a recorded step mixes each batch as its own draw says.
TEST(EmulatedTraining, MixesBatchesAsTheCpuRecordedOrNot) {
  TempDir folder;
  const std::vector<std::string> recipe = {"--model",
                                           "lenet",
                                           "--dataset",
                                           "synthetic:3x28x28,10,256",
                                           "--global-batch-size",
                                           "16",
                                           "--mixup",
                                           "0.2",
                                           "--cutmix",
                                           "1",
                                           "--label-smoothing",
                                           "0.1",
                                           "--lr",
                                           "0.05",
                                           "--max-steps",
                                           "8",
                                           "--eval-every",
                                           "0"};
  TrainingRun cpu{.start = Start::alone,
                  .launcher_arguments = {},
                  .arguments = {"--device", "cpu", "--log-every", "1"},
                  .run_dir = folder / "cpu",
                  .options = limited_to(std::chrono::seconds(60))};
  add(cpu, recipe);
  const RunResult there = train(cpu);
  ASSERT_EQ(there.exit_code, 0) << there.err;
  const auto expected = losses(cpu.run_dir);
  ASSERT_EQ(expected.size(), 8U);
  for (const char* graph : {"on", "off"}) {
    TrainingRun run = on_gpus(1, 1, 3, folder / graph);
    add(run, recipe);
    add(run, {"--cuda-graph", graph});
    const RunResult result = train(run);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const auto got = losses(run.run_dir);
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i)
      EXPECT_NEAR(got[i], expected[i], 2e-6) << graph << " " << i + 1;
  }
}

// Averages are updated in the recorded step, and are the weights while the network is evaluated and recorded
// steps wait.
TEST(EmulatedTraining, AveragesWeightsAsTheCpuRecordedOrNot) {
  TempDir folder;
  const std::vector<std::string> recipe = {"--model",
                                           "lenet",
                                           "--dataset",
                                           "synthetic:1x28x28,10,96",
                                           "--global-batch-size",
                                           "16",
                                           "--ema",
                                           "0.7",
                                           "--lr",
                                           "0.05",
                                           "--max-steps",
                                           "12",
                                           "--eval-every",
                                           "1"};
  TrainingRun cpu{.start = Start::alone,
                  .launcher_arguments = {},
                  .arguments = {"--device", "cpu", "--log-every", "1"},
                  .run_dir = folder / "cpu",
                  .options = limited_to(std::chrono::seconds(60))};
  add(cpu, recipe);
  const RunResult there = train(cpu);
  ASSERT_EQ(there.exit_code, 0) << there.err;
  const Trained expected = trained_in(cpu.run_dir);
  for (const char* graph : {"on", "off"}) {
    TrainingRun run = on_gpus(1, 1, 3, folder / graph);
    add(run, recipe);
    add(run, {"--cuda-graph", graph});
    const RunResult result = train(run);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const Trained got = trained_in(run.run_dir);
    ASSERT_TRUE(got.weights.contains("conv1.weight.ema"));
    const Difference apart = difference(got, expected);
    EXPECT_LE(apart.losses, 2e-6) << graph;
    EXPECT_LE(apart.weights, 2e-6) << graph;
  }
}

TEST(EmulatedGpus, AreTakenByAutoAndNamedEverywhere) {
  TempDir folder;
  write_small_dataset(folder / "data", 96, 32);
  TrainingRun run = on_gpus(4, 0, 1, folder / "run");
  run.world = 2;
  run.launcher_arguments = {"--emulated-gpus=4",
                            "--nproc-per-node=auto"};  // the last word on their number counts
  run.arguments = {"--model",     "mlp", "--data-dir",          (folder / "data").string(),
                   "--max-steps", "2",   "--global-batch-size", "32"};
  run.options.environment["CUDA_VISIBLE_DEVICES"] = "2,0";  // two workers, on these
  const RunResult result = train(run);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE((result.out + result.err).find("software that emulates a GPU"), std::string::npos) << result.err;
  const auto summary = Json::read(run.run_dir / "summary.json"),
             config = Json::read(run.run_dir / "config.json");
  for (const auto& file : {summary, config}) {
    EXPECT_EQ(file.at("device"), "cuda:0 (emulated GPU 2)");
    EXPECT_EQ(file.at("emulated"), true);
  }
  EXPECT_EQ(summary.at("world_size"), 2);
  std::ifstream log(run.run_dir / "logs" / "rank-0.log");
  const std::string text(std::istreambuf_iterator<char>(log), {});
  EXPECT_NE(text.find("cuda:0 (emulated GPU 2), backend nccl"), std::string::npos) << text;
}

TEST(EmulatedGpus, WhatCudnnRefusesIsSaidOnce) {
  TempDir folder;
  write_small_dataset(folder / "data", 96, 32);
  TrainingRun run = on_gpus(1, 1, 0, folder / "run");
  add(run, {"--model", "lenet", "--data-dir", (folder / "data").string(), "--max-steps", "4",
            "--global-batch-size", "16", "--eval-every", "0"});
  run.options.environment["DTRAIN_EMULATED_CUDNN_REFUSES"] = "input";
  const RunResult result = train(run);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::string said =
      "cuDNN has no deterministic algorithm for conv2d back to the input, float32, input [16, 20, 13, 13], "
      "weight [50, 20, 5, 5]: a direct kernel does it";
  const std::size_t first = result.err.find("cuDNN");
  EXPECT_EQ(first, result.err.find(said)) << result.err;
  EXPECT_EQ(result.err.find("cuDNN", first + 1), std::string::npos) << result.err;
}

TEST(EmulatedGpus, TwoRanksOnOneAreRefusedByName) {
  TempDir folder;
  write_small_dataset(folder / "data", 96, 32);
  TrainingRun run = on_gpus(1, 2, 0, folder / "run");
  add(run, {"--model", "mlp", "--data-dir", (folder / "data").string(), "--max-steps", "2",
            "--global-batch-size", "32"});
  const RunResult result = train(run);
  EXPECT_NE(result.exit_code, 0);
  EXPECT_NE(result.err.find("Duplicate GPU detected"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace dtrain::test
