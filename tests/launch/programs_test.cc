// Programs whose step is more than one loss and one optimizer, beside the same ones in PyTorch
// (programs/*.py, which recorded the losses): alone, on two workers, with optimizer state split among them,
// and after kill -9.
#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>

#include "tests/support/json.h"
#include "tests/support/temp_dir.h"
#include "tests/support/training.h"

namespace dtrain::test {
namespace {

constexpr double kTolerance = 1e-5;

class Programs : public testing::Test {
 protected:
  TrainingRun training(const std::string& name, const std::string& program, int world,
                       const std::vector<std::string>& more = {}) {
    const char* examples = std::getenv("DTRAIN_EXAMPLES");
    std::vector<std::string> arguments = {"--epochs",    "4", "--global-batch-size", "64",
                                          "--log-every", "1", "--checkpoint-every",  "5"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return {.program = {std::string(examples == nullptr ? "." : examples) + "/" + program},
            .start = world == 1 ? Start::alone : Start::launcher,
            .world = world,
            .launcher_arguments = {},
            .arguments = arguments,
            .run_dir = folder_ / name,
            .options = limited_to(std::chrono::seconds(100))};
  }

  static void expect_trained(const RunResult& result) {
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  }

  /// Each step's losses: of the phases, where it has some.
  static std::vector<std::vector<double>> losses_of(const TrainingRun& run) {
    std::vector<std::vector<double>> all;
    std::istringstream text(read_file(run.run_dir / "metrics.jsonl"));
    for (std::string line; std::getline(text, line);) {
      const Json record = Json::parse(line);
      if (record.at("event").get<std::string>() != "step") continue;
      std::vector<double> losses = {record.at("loss").get<double>()};
      if (record.contains("losses"))
        losses = {record.at("losses").at("discriminator").get<double>(),
                  record.at("losses").at("generator").get<double>()};
      all.push_back(losses);
    }
    return all;
  }

  static void expect_pytorchs(const TrainingRun& run, const std::string& recorded) {
    const Json golden =
        Json::parse(read_file(std::filesystem::path(DTRAIN_PROGRAMS) / recorded)).at("losses");
    const auto losses = losses_of(run);
    ASSERT_EQ(losses.size(), golden.size());
    for (std::size_t i = 0; i < losses.size(); ++i) {
      for (std::size_t k = 0; k < losses[i].size(); ++k) {
        const double expected =
            losses[i].size() == 1 ? golden.at(i).get<double>() : golden.at(i).at(k).get<double>();
        EXPECT_NEAR(losses[i][k], expected, kTolerance)
            << run.run_dir << ", step " << i + 1 << ", phase " << k;
      }
    }
  }

  void expect_same_after_kill9(const std::string& program, const std::vector<std::string>& more) {
    std::vector<std::string> longer = more;
    longer.insert(longer.end(), {"--epochs", "150", "--checkpoint-every", "20"});
    const TrainingRun whole = training("whole", program, 2, longer);
    expect_trained(train(whole));
    TrainingRun killed = training("killed", program, 2, longer);
    kill_rank_1_at_a_checkpoint(killed);
    const RunResult result = train(killed);
    killed.options.while_running = {};
    if (result.exit_code == 0) GTEST_SKIP() << "the run was over before it could be killed";
    expect_trained(train(killed));
    const auto expected = losses_of(whole), found = losses_of(killed);
    ASSERT_GE(found.size(), 20U);
    EXPECT_EQ(std::vector(found.end() - 20, found.end()), std::vector(expected.end() - 20, expected.end()));
    const bool is_whole = more.empty() || more.front() != "--shard";  // else a file for each rank
    if (is_whole) {
      EXPECT_EQ(final_weights(killed.run_dir), final_weights(whole.run_dir));
    }
  }

  TempDir folder_;
};

TEST_F(Programs, AGanHasTheLossesOfPyTorch) {
  const std::pair<std::string, std::vector<std::string>> forms[] = {{"plain", {}},
                                                                    {"accumulated", {"--accumulate", "2"}},
                                                                    {"optimizer", {"--shard", "optimizer"}},
                                                                    {"gradients", {"--shard", "gradients"}}};
  const TrainingRun alone = training("alone", "gan", 1);
  expect_trained(train(alone));
  expect_pytorchs(alone, "gan.json");
  for (const auto& [name, more] : forms) {
    const TrainingRun run = training(name, "gan", 2, more);
    expect_trained(train(run));
    expect_pytorchs(run, "gan.json");
  }
}

// From one form to another in the middle: the losses go on.
TEST_F(Programs, AGanIsResumedInAnotherForm) {
  for (const auto& [steps, more] : std::vector<std::pair<std::string, std::vector<std::string>>>{
           {"15", {"--shard", "optimizer"}}, {"25", {}}, {"40", {"--shard", "gradients"}}}) {
    TrainingRun run = training("changing", "gan", 2, more);
    run.arguments.insert(run.arguments.end(), {"--max-steps", steps});
    expect_trained(train(run));
  }
  expect_pytorchs(training("changing", "gan", 2), "gan.json");
}

TEST_F(Programs, AGanResumesBitForBitAfterKill9) { expect_same_after_kill9("gan", {}); }

TEST_F(Programs, AGanWithPartitionedStateResumesBitForBitAfterKill9) {
  expect_same_after_kill9("gan", {"--shard", "optimizer"});
}

TEST_F(Programs, AFrozenBodyAndTwoRatesHaveTheLossesOfPyTorch) {
  for (const int world : {1, 2}) {
    const TrainingRun run = training(std::to_string(world), "finetune", world, {"--momentum", "0.9"});
    expect_trained(train(run));
    expect_pytorchs(run, "finetune.json");
  }
}

TEST_F(Programs, FineTuningResumesBitForBitAfterKill9) {
  expect_same_after_kill9("finetune", {"--momentum", "0.9"});
}

TEST_F(Programs, WhatAPhaseCannotHaveIsRefusedWithTheReason) {
  const std::pair<std::vector<std::string>, std::string> refused[] = {
      {{"--shard", "parameters"}, "with a task of several phases, each of which needs whole parameters"},
      {{"--ema", "0.9"}, "with a task of several phases; average in an after_update()"},
      {{"--virtual-workers", "2"}, "with a task of several phases"},
  };
  for (const auto& [more, words] : refused) {
    const RunResult result = train(training("refused", "gan", 1, more));
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_NE(result.err.find(words), std::string::npos) << result.err;
  }
}

}  // namespace
}  // namespace dtrain::test
