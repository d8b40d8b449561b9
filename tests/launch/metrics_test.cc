// What a real run says about the memory it holds, in metrics.jsonl and summary.json.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "tests/support/json.h"
#include "tests/support/temp_dir.h"
#include "tests/support/training.h"

namespace dtrain::test {
namespace {

using test::Json;

// Of the perceptron on 28 x 28 images: weights, their gradients and one momentum, in float32.
constexpr std::int64_t kParameters = 784 * 512 + 512 + 512 * 512 + 512 + 512 * 10 + 10;
constexpr std::int64_t kStateBytes = 3 * 4 * kParameters;

class Memory : public ::testing::Test {
 protected:
  void SetUp() override {
    write_small_dataset(folder_ / "data", 200, 20);
    const TrainingRun run{
        .start = Start::alone,
        .launcher_arguments = {},
        .arguments = {"--model", "mlp", "--data-dir", (folder_ / "data").string(), "--max-steps", "6",
                      "--global-batch-size", "20", "--momentum", "0.9", "--log-every", "2"},
        .run_dir = folder_ / "run",
        .options = {}};
    const RunResult result = train(run);
    ASSERT_EQ(result.exit_code, 0) << result.err;
  }
  std::vector<Json> step_events() const {
    std::vector<Json> events;
    std::istringstream lines(read_file(folder_ / "run/metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      if (Json event = Json::parse(line); event.at("event") == "step") events.push_back(std::move(event));
    }
    return events;
  }

  TempDir folder_;
};

TEST_F(Memory, IsInEveryStepEvent) {
  const auto events = step_events();
  ASSERT_EQ(events.size(), 3U);
  std::int64_t peak_before = 0;
  for (const Json& event : events) {
    const auto allocated = event.at("allocated_bytes").get<std::int64_t>();
    const auto peak = event.at("peak_allocated_bytes").get<std::int64_t>();
    EXPECT_GE(allocated, kStateBytes) << event;
    EXPECT_LT(allocated, 8 * kStateBytes) << event;
    EXPECT_GE(peak, allocated) << event;
    EXPECT_GE(peak, peak_before) << event;
    EXPECT_GT(event.at("resident_bytes").get<std::int64_t>(), kStateBytes) << event;
    EXPECT_GE(event.at("peak_resident_bytes"), event.at("resident_bytes")) << event;
    peak_before = peak;
  }
}

// Sizes of a step repeat: what one step takes is given back before the next.
TEST_F(Memory, DoesNotGrowFromStepToStep) {
  const auto events = step_events();
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events[1].at("allocated_bytes"), events[2].at("allocated_bytes"));
}

TEST_F(Memory, IsInTheSummary) {
  const Json summary = Json::parse(read_file(folder_ / "run/summary.json"));
  EXPECT_GE(summary.at("allocated_bytes"), kStateBytes);
  EXPECT_GE(summary.at("peak_allocated_bytes"), step_events().back().at("peak_allocated_bytes"));
  EXPECT_GE(summary.at("peak_resident_bytes"), summary.at("resident_bytes"));
}

}  // namespace
}  // namespace dtrain::test
