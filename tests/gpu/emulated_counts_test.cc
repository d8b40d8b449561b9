// What a step asks of the GPU, counted on the emulated machine. The numbers are exact: one that changes is a
// change in the program, for the better (then it is written down here) or for the worse.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>

#include "tests/support/json.h"
#include "tests/support/temp_dir.h"
#include "tests/support/training.h"

namespace dtrain::test {
namespace {

using Counts = std::map<std::string, std::int64_t>;

Counts counts_of(const std::string& graph, int steps, const std::string& autotune = "on") {
  TempDir folder;
  write_small_dataset(folder / "data", 1024, 32);
  TrainingRun run{.start = Start::launcher,
                  .world = 1,
                  .launcher_arguments = {"--emulated-gpus=1"},
                  .arguments = {"--device",
                                "cuda",
                                "--model",
                                "lenet",
                                "--data-dir",
                                (folder / "data").string(),
                                "--max-steps",
                                std::to_string(steps),
                                "--global-batch-size",
                                "32",
                                "--eval-every",
                                "0",
                                "--checkpoint-every",
                                "0",
                                "--momentum",
                                "0.9",
                                "--cuda-graph",
                                graph,
                                "--autotune",
                                autotune},
                  .run_dir = folder / "run",
                  .options = limited_to(std::chrono::seconds(200))};
  run.options.environment["DTRAIN_EMULATED_COUNTS"] = (folder / "counts.json").string();
  const RunResult result = train(run);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  Counts counts;
  for (const auto& [name, count] : Json::read(folder / "counts.json").items()) counts[name] = count;
  return counts;
}

/// Of steps 11 to 30, which are all alike.
Counts of_twenty_steps(const std::string& graph) {
  const Counts few = counts_of(graph, 10), many = counts_of(graph, 30);
  Counts steps;
  for (const auto& [name, count] : many) steps[name] = count - few.at(name);
  return steps;
}

TEST(EmulatedCounts, OfRecordedStepsOfLeNet) {
  const Counts steps = of_twenty_steps("on");
  EXPECT_EQ(steps.at("launches"), 20 * 11);  // around the graph, one of them the images' division
  EXPECT_EQ(steps.at("graph_launches"), 20);
  EXPECT_EQ(steps.at("graph_nodes"), 20 * 38);
  EXPECT_EQ(steps.at("host_waits"), 0);
  EXPECT_EQ(steps.at("allocations"), 20);
  EXPECT_EQ(steps.at("pinned_allocations"), 0);
}

TEST(EmulatedCounts, OfStepsOfLeNetAsTheyCome) {
  const Counts steps = of_twenty_steps("off");
  EXPECT_EQ(steps.at("launches"), 20 * 47);
  // Images as bytes and labels to the GPU, labels once more on it, a report back.
  EXPECT_EQ(steps.at("copied_bytes"), 20 * (32 * 784 + 2 * 32 * 8 + 56));
  EXPECT_EQ(steps.at("host_waits"), 0);
  EXPECT_EQ(steps.at("pinned_allocations"), 0);
}

// Each try waits for the GPU: two convolutions forward and back to their weights, one back to its input.
TEST(EmulatedCounts, WithoutAutotuneNoAlgorithmIsTried) {
  EXPECT_EQ(counts_of("off", 5).at("host_waits") - counts_of("off", 5, "off").at("host_waits"), 5);
}

/// What a step of ResNet-18 over small images takes, as `dtrain bench step` counts it.
struct StepCounts {
  int calls = 0;
  double megabytes = 0;
};

StepCounts of_a_step_of_resnet(const std::string& precision) {
  RunOptions options = limited_to(std::chrono::seconds(200));
  options.environment["DTRAIN_EMULATED_GPUS"] = "1";
  const RunResult result =
      run({std::string(std::getenv("DTRAIN_BIN")) + "/dtrain", "bench", "step", "--device", "cuda", "--model",
           "resnet18", "--dataset", "synthetic:1x8x8,10,16", "--batch-size", "4", "--warmup", "1",
           "--precision", precision, "--json"},
          options);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const Json step = Json::parse(result.out.substr(result.out.rfind('\n', result.out.size() - 2) + 1));
  EXPECT_EQ(step.at("emulated"), true);
  return {static_cast<int>(step.at("calls").get<double>()),
          (step.at("read_bytes").get<double>() + step.at("written_bytes").get<double>()) * 1e-6};
}

TEST(EmulatedCounts, OfAStepOfResNet18) {
  const StepCounts fp32 = of_a_step_of_resnet("fp32"), bf16 = of_a_step_of_resnet("bf16"),
                   fp16 = of_a_step_of_resnet("fp16");
  EXPECT_EQ(fp32.calls, 277);
  EXPECT_EQ(bf16.calls, 318);
  EXPECT_EQ(fp16.calls, 320);               // and loss scaling
  EXPECT_NEAR(fp32.megabytes, 586.7, 0.3);  // gradients are looked at
  EXPECT_NEAR(bf16.megabytes, 430.0, 0.1);
  EXPECT_NEAR(fp16.megabytes, 340.5, 0.1);  // its first steps overflow and leave the optimizer's arrays alone
}

}  // namespace
}  // namespace dtrain::test
