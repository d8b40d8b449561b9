// Speeds of language models as others count them.
#include "training/log/model_speed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string_view>

#include "models/tasks/training_cost.h"
#include "models/text/text_model.h"
#include "training/log/run_progress.h"
#include "training/log/run_records.h"

namespace dtrain {
namespace {

using testing::DoubleNear;
using testing::HasSubstr;
using testing::Not;

// nanoGPT's estimate_mfu: N = 124,439,808 - 1024 * 768 (places), which has biases and norms, too.
TEST(TrainingCost, IsNanoGptsForGpt2) {
  const TrainingCost cost = training_cost(text_model("gpt2").shape, 1024);
  const double n = 124'439'808 - 1024 * 768, nanogpt = 1024 * (6 * n + 12.0 * 12 * 12 * 64 * 1024);
  EXPECT_EQ(cost.tokens, 1024);
  EXPECT_THAT(cost.flops / nanogpt, DoubleNear(1, 1.5e-3));
  EXPECT_EQ(cost.formula, "6 N + 12 L H Q T a token");
}

// LLaMA 7B: 2 * 32000 * 4096 of words, of which half are looked up, and 32 blocks of 4 * 4096² + 3 * 4096 *
// 11008.
TEST(TrainingCost, CountsSharedKeysGatesAndAdapters) {
  TransformerShape shape{.vocabulary = 32'000, .context = 2048, .width = 4096, .heads = 32, .layers = 32};
  shape.inner = 11'008;
  shape.feed_forward = FeedForward::swiglu;
  const double block = 4.0 * 4096 * 4096 + 3.0 * 4096 * 11'008, words = 32'000.0 * 4096;
  const double scores = 12.0 * 32 * 4096 * 2048;
  EXPECT_EQ(training_cost(shape, 2048).flops, 2048 * (6 * (32 * block + words) + scores));
  shape.kv_heads = 8;
  const double grouped = block - 2.0 * 4096 * (4096 - 1024);
  EXPECT_EQ(training_cost(shape, 2048).flops, 2048 * (6 * (32 * grouped + words) + scores));
  shape.lora = LoraOptions{};
  EXPECT_EQ(training_cost(shape, 2048).flops, 2048 * (4 * (32 * grouped + words) + scores));
  EXPECT_EQ(training_cost(shape, 2048).formula, "4 N + 12 L H Q T a token");
}

TEST(PeakFlops, AreTheDataSheetsOrTheUsers) {
  TrainConfig config;
  constexpr std::string_view h100 = "cuda:1 (NVIDIA H100 80GB HBM3)", pcie = "cuda:0 (NVIDIA H100 PCIe)";
  config.precision = Precision::bf16;
  EXPECT_EQ(peak_flops(config, h100), 989e12);
  config.precision = Precision::tf32;
  EXPECT_EQ(peak_flops(config, h100), 495e12);
  config.precision = Precision::fp32;
  EXPECT_EQ(peak_flops(config, h100), 67e12);
  EXPECT_FALSE(peak_flops(config, pcie));
  EXPECT_FALSE(peak_flops(config, "cpu"));
  config.peak_tflops = 0.25;
  EXPECT_EQ(peak_flops(config, "cpu"), 0.25e12);
  EXPECT_EQ(peak_flops(config, h100), 0.25e12);
}

TEST(ModelSpeed, IsInTheSummary) {
  RunSummary summary;
  EXPECT_THAT(summary_json(summary), Not(HasSubstr("tokens")));
  const TrainingCost cost{.tokens = 100, .flops = 3e9, .formula = "a formula"};
  summary.speed = model_speed(cost, 7, 20, 1e12, 2);
  for (const char* line :
       {"\"tokens\": 700", "\"tokens_per_second\": 2000.0", "\"mfu\": 0.03",
        "\"model_flops_per_second\": 60000000000.0", "\"model_flops_formula\": \"a formula\""})
    EXPECT_THAT(summary_json(summary), HasSubstr(line));
  summary.speed = model_speed(cost, 7, 20, {}, 2);
  EXPECT_THAT(summary_json(summary), Not(HasSubstr("mfu")));
}

TEST(RunProgress, CountsSamplesOfAllStarts) {
  TrainConfig config;
  config.batch.global = 32;
  const RunProgress at{.epoch = 2, .position = 64};
  EXPECT_EQ(at.samples(100, config), 264);
  config.drop_last = true;
  EXPECT_EQ(at.samples(100, config), 256);
}

}  // namespace
}  // namespace dtrain
