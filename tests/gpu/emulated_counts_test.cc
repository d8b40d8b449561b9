// What a step asks of the GPU, counted on the emulated machine. The numbers are exact: one that changes is a
// change in the program, for the better (then it is written down here) or for the worse.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

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
                  .options = limited_to(std::chrono::seconds(60))};
  run.options.environment["DTRAIN_EMULATED_COUNTS"] = (folder / "counts.json").string();
  const RunResult result = train(run);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  std::ifstream in(folder / "counts.json");
  return nlohmann::json::parse(in).get<Counts>();
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
  EXPECT_EQ(steps.at("launches"), 20 * 8);  // around the graph
  EXPECT_EQ(steps.at("graph_launches"), 20);
  EXPECT_EQ(steps.at("graph_nodes"), 20 * 36);
  EXPECT_EQ(steps.at("host_waits"), 0);
  EXPECT_EQ(steps.at("allocations"), 20);
  EXPECT_EQ(steps.at("pinned_allocations"), 0);
}

TEST(EmulatedCounts, OfStepsOfLeNetAsTheyCome) {
  const Counts steps = of_twenty_steps("off");
  EXPECT_EQ(steps.at("launches"), 20 * 42);
  EXPECT_EQ(steps.at("host_waits"), 0);
  EXPECT_EQ(steps.at("pinned_allocations"), 0);
}

// Each try waits for the GPU: two convolutions forward and back to their weights, one back to its input.
TEST(EmulatedCounts, WithoutAutotuneNoAlgorithmIsTried) {
  EXPECT_EQ(counts_of("off", 5).at("host_waits") - counts_of("off", 5, "off").at("host_waits"), 5);
}

}  // namespace
}  // namespace dtrain::test
