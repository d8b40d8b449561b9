// Programs whose step is more than one loss and one optimizer, beside the same ones in PyTorch
// (programs/*.py, which recorded the losses): alone, on two workers, with optimizer state split among them,
// and after kill -9.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "tests/support/json.h"
#include "tests/support/temp_dir.h"
#include "tests/support/training.h"

namespace dtrain::test {
namespace {

constexpr double kTolerance = 1e-5;
const std::vector<std::string> kByol = {"--lr", "0.1", "--momentum", "0.9"};
const std::vector<std::string> kDetector = {"--optimizer", "adamw",          "--lr",
                                            "0.003",       "--weight-decay", "0.01"};
const std::vector<std::string> kContrastive = kDetector;

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

  /// Alone, on two workers, and on two workers in each of `forms`.
  void expect_pytorchs_in_forms(const std::string& program, const std::vector<std::string>& options,
                                const std::vector<std::pair<std::string, std::vector<std::string>>>& forms) {
    std::vector<TrainingRun> runs = {training("alone", program, 1, options),
                                     training("plain", program, 2, options)};
    for (const auto& [name, more] : forms) {
      runs.push_back(training(name, program, 2, options));
      runs.back().arguments.insert(runs.back().arguments.end(), more.begin(), more.end());
    }
    for (const TrainingRun& run : runs) {
      expect_trained(train(run));
      expect_pytorchs(run, program + ".json");
    }
  }

  /// `epochs` take long enough to be killed in.
  void expect_same_after_kill9(const std::string& program, const std::vector<std::string>& more,
                               const std::string& epochs = "150") {
    std::vector<std::string> longer = more;
    longer.insert(longer.end(), {"--epochs", epochs, "--checkpoint-every", "20"});
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
    const auto has = [&](const char* option) { return std::ranges::find(more, option) != more.end(); };
    const bool is_whole = !has("--shard") && !has("--pipeline");  // else a file for each rank
    if (is_whole) {
      EXPECT_EQ(final_weights(killed.run_dir), final_weights(whole.run_dir));
    }
  }

  TempDir folder_;
};

TEST_F(Programs, AGanHasTheLossesOfPyTorch) {
  expect_pytorchs_in_forms("gan", {},
                           {{"accumulated", {"--accumulate", "2"}},
                            {"optimizer", {"--shard", "optimizer"}},
                            {"gradients", {"--shard", "gradients"}}});
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

// A frozen target that follows by an after_update(), and a loss of two views.
TEST_F(Programs, ByolHasTheLossesOfPyTorch) {
  expect_pytorchs_in_forms("byol", kByol,
                           {{"accumulated", {"--accumulate", "2"}},
                            {"optimizer", {"--shard", "optimizer"}},
                            {"gradients", {"--shard", "gradients"}},
                            {"virtual", {"--virtual-workers", "4"}}});
}

TEST_F(Programs, ByolResumesBitForBitAfterKill9) { expect_same_after_kill9("byol", kByol); }

// Three losses whose mean is over objects, of which each batch has another number.
TEST_F(Programs, ADetectorHasTheLossesOfPyTorch) {
  expect_pytorchs_in_forms("detector", kDetector,
                           {{"accumulated", {"--accumulate", "2"}},
                            {"optimizer", {"--shard", "optimizer"}},
                            {"parameters", {"--shard", "parameters"}},
                            {"pipeline", {"--pipeline", "2"}},
                            {"virtual", {"--virtual-workers", "4"}}});
}

TEST_F(Programs, ADetectorWithPartitionedParametersResumesBitForBitAfterKill9) {
  std::vector<std::string> more = kDetector;
  more.insert(more.end(), {"--shard", "parameters"});
  expect_same_after_kill9("detector", more, "40");
}

TEST_F(Programs, ADetectorInTwoStagesResumesBitForBitAfterKill9) {
  std::vector<std::string> more = kDetector;
  more.insert(more.end(), {"--pipeline", "2"});
  expect_same_after_kill9("detector", more, "40");
}

TEST_F(Programs, ADetectorsEvaluationHasEachLoss) {
  const TrainingRun run = training("run", "detector", 2, kDetector);
  expect_trained(train(run));
  const Json metrics = Json::parse(read_file(run.run_dir / "summary.json")).at("test");
  const double whole = metrics.at("object_loss").get<double>() + 5 * metrics.at("box_loss").get<double>() +
                       metrics.at("class_loss").get<double>();
  EXPECT_NEAR(metrics.at("loss").get<double>(), whole, kTolerance);
}

// Each view is compared with those of all workers, which gradients come back from.
TEST_F(Programs, AContrastiveLossOverAllWorkersHasTheLossesOfPyTorch) {
  expect_pytorchs_in_forms("contrastive", kContrastive,
                           {{"optimizer", {"--shard", "optimizer"}},
                            {"gradients", {"--shard", "gradients"}},
                            {"parameters", {"--shard", "parameters"}}});
  TrainingRun threads = training("threads", "contrastive", 1, kContrastive);
  threads.arguments.insert(threads.arguments.end(), {"--thread-workers", "4"});
  for (const TrainingRun& run : {training("four", "contrastive", 4, kContrastive), threads}) {
    expect_trained(train(run));
    expect_pytorchs(run, "contrastive.json");
  }
}

TEST_F(Programs, AContrastiveLossResumesBitForBitAfterKill9) {
  expect_same_after_kill9("contrastive", kContrastive);
}

TEST_F(Programs, NoneIsMuchLongerThanInPyTorch) {
  const std::filesystem::path programs = DTRAIN_PROGRAMS, examples = programs / "../../../examples";
  const auto lines = [](const std::filesystem::path& file) {
    const std::string text = read_file(file);
    return static_cast<double>(std::ranges::count(text, '\n'));
  };
  for (const std::string name : {"gan", "finetune", "byol", "detector", "contrastive"})
    EXPECT_LE(lines(examples / name / "main.cc"), 1.3 * lines(programs / (name + ".py"))) << name;
}

TEST_F(Programs, WhatAnAfterUpdateCannotHaveIsRefusedWithTheReason) {
  const std::pair<std::vector<std::string>, std::string> refused[] = {
      {{"--shard", "parameters"}, "with a task with an after_update(), which needs whole parameters"},
      {{"--pipeline", "2"}, "with a task with an after_update(), which needs the whole network"},
  };
  for (const auto& [more, words] : refused) {
    const RunResult result = train(training("refused", "byol", 2, more));
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_NE(result.err.find(words), std::string::npos) << result.err;
  }
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
