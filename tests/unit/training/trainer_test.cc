// The whole trainer, alone: what it may save.
#include "training/loop/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include "collectives/factory.h"
#include "models/tasks/classification.h"
#include "parallel/forms.h"
#include "parallel/layout/saved_tensors.h"
#include "runtime/autograd/ops/losses.h"
#include "runtime/metrics/report/pictures.h"
#include "runtime/metrics/run_directory.h"
#include "runtime/nn/init.h"
#include "runtime/nn/layers.h"
#include "runtime/nn/trainable.h"
#include "runtime/optim/sgd.h"
#include "tests/support/message_of.h"
#include "tests/support/temp_dir.h"
#include "tests/support/training.h"
#include "training/options/train_flags.h"
#include "training/saving.h"
#include "training/task_traits.h"
#include "training/train_main.h"

namespace dtrain {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr double kMasked = -std::numeric_limits<double>::infinity();

/// Another network and a mask, as attention has one: minus infinity where nothing may be looked at.
class Masked final : public Module {
 public:
  Masked(std::unique_ptr<Module> inner, const std::shared_ptr<Device>& device) {
    inner_ = add_module("inner", std::shared_ptr<Module>(std::move(inner)));
    add_buffer("mask", Tensor::full({4}, kMasked, device));
  }
  Tensor forward(const Tensor& input) override { return (*inner_)(input); }

 private:
  std::shared_ptr<Module> inner_;
};

class MaskedClassification final : public Task {
 public:
  std::string name() const override { return "masked"; }
  Splits open(const DataRequest& request) const override { return inner_.open(request); }
  std::unique_ptr<Module> build(std::span<const Field> fields, Generator& generator,
                                const std::shared_ptr<Device>& device) const override {
    return std::make_unique<Masked>(inner_.build(fields, generator, device), device);
  }
  Tensor loss(const Tensors& outputs, const BatchTensors& batch) const override {
    return inner_.loss(outputs, batch);
  }

 private:
  Classification inner_{"mlp"};
};

/// Somebody's task with something forgotten.
class Unfinished final : public Task {
 public:
  enum class Lacks { train, test, network };
  explicit Unfinished(Lacks lacks) : lacks_(lacks) {}
  std::string name() const override { return "unfinished"; }
  Splits open(const DataRequest& request) const override {
    Splits splits = inner_.open(request);
    if (lacks_ == Lacks::train) splits.train = nullptr;
    if (lacks_ == Lacks::test) splits.test = nullptr;
    return splits;
  }
  std::unique_ptr<Module> build(std::span<const Field> fields, Generator& generator,
                                const std::shared_ptr<Device>& device) const override {
    return lacks_ == Lacks::network ? nullptr : inner_.build(fields, generator, device);
  }
  Tensor loss(const Tensors& outputs, const BatchTensors& batch) const override {
    return inner_.loss(outputs, batch);
  }

 private:
  Lacks lacks_;
  Classification inner_{"mlp"};
};

/// Runs alone on the CPU, in one folder.
class TrainerTest : public testing::Test {
 protected:
  ExitCode train(const Task& task, std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--batch-size", "8", "--run-dir", (folder_ / "run").string()});
    const Environment environment;
    const StopSignal stop_signal;
    Tracer tracer(std::nullopt, 0, log_);
    const auto communicator = make_communicator(Backend::self, {}, log_);
    const auto device = make_device("cpu");
    const Options options = resolve_options("test", train_options(), arguments, environment);
    const TrainConfig config = make_train_config(options, task.name(), 1, traits_of(task));
    StepClock clock;
    const auto strategy = make_data_parallel({*communicator, device, config.collective_timeout, {&clock}});
    Trainer trainer(config, {task, *strategy, *communicator, device, options, environment, stop_signal, log_,
                             tracer, clock});
    return trainer.run();
  }

  test::TempDir folder_;
  WorkerLog log_{"test"};
};

TEST_F(TrainerTest, SavesAndResumesBuffersThatAreMeantToBeInfinite) {
  for (const char* steps : {"2", "4"}) {  // the second run resumes from the first one's checkpoint
    EXPECT_EQ(train(MaskedClassification(), {"--dataset", "synthetic:1x6x6,10,64", "--max-steps", steps}),
              ExitCode::ok);
    const auto saved = CheckpointStore(folder_ / "run" / "checkpoints", 0, log_).latest();
    ASSERT_TRUE(saved);
    EXPECT_EQ(std::to_string(saved->state.step), steps);
  }
}

TEST_F(TrainerTest, NamesWhatATaskDoesNotReturn) {
  const auto refusal = [&](Unfinished::Lacks lacks) {
    return test::message_of([&] {
      train(Unfinished(lacks), {"--dataset", "synthetic:1x6x6,10,64", "--max-steps", "1"});
    });
  };
  EXPECT_THAT(refusal(Unfinished::Lacks::train),
              HasSubstr("expected a training split of at least one sample, got null"));
  EXPECT_THAT(refusal(Unfinished::Lacks::test),
              HasSubstr("expected a test split of at least one sample, got null"));
  EXPECT_THAT(refusal(Unfinished::Lacks::network), HasSubstr("expected build() to return a network"));
}

// Matrices, in the order of the network, behind the draws that made it; biases keep theirs.
TEST_F(TrainerTest, DrawsOtherInitialWeights) {
  const Classification task("mlp");
  EXPECT_EQ(train(task, {"--dataset", "synthetic:1x6x6,10,64", "--max-steps", "0", "--init", "uniform:0.25",
                         "--checkpoint-at-start"}),
            ExitCode::ok);
  Generator generator(0), other(0);
  const auto device = make_device("cpu");
  const Splits splits = task.open({.dataset = "synthetic:1x6x6,10,64", .data_dir = ""});
  const auto expected = task.build(splits.train->fields(), generator, device);
  const auto plain = task.build(splits.train->fields(), other, device);
  for (const auto& [name, parameter] : expected->named_parameters())
    if (parameter.rank() == 2) init::uniform_(parameter, -0.25, 0.25, generator);
  load_weights(*plain, folder_ / "run" / "checkpoints" / "step-00000000" / "model.safetensors");
  for (std::size_t i = 0; i < expected->named_parameters().size(); ++i) {
    const auto& [name, parameter] = expected->named_parameters()[i];
    EXPECT_EQ(plain->named_parameters()[i].second.to_vector<float>(), parameter.to_vector<float>()) << name;
  }
}

// What the report shows of samples is there after the first step and an evaluation.
TEST_F(TrainerTest, KeepsPicturesForTheReport) {
  const Classification task("mlp", {.mixing = {.mixup = 1}});
  EXPECT_EQ(train(task, {"--dataset", "synthetic:3x20x24,10,64", "--max-steps", "2"}), ExitCode::ok);
  const RunDirectory run(folder_ / "run");
  const std::string evaluation = test::read_file(run.evaluation());
  EXPECT_THAT(evaluation, HasSubstr(R"("epoch":0,"step":2,"classes":["0","1")"));
  EXPECT_THAT(shown_evaluation(evaluation, "x"), HasSubstr(R"("samples":64)"));
  if (!std::filesystem::exists(run.batch())) GTEST_SKIP() << "dtrain was built without libjpeg-turbo";
  const std::string batch = shown_batch(test::read_file(run.batch()), "x");
  EXPECT_THAT(batch, HasSubstr(R"("columns":8,"cell":[32,32],"size":[24,20])"));
  EXPECT_THAT(test::read_file(run.report()), HasSubstr("data:image/jpeg;base64,"));
}

// As epoch 0, once, and without a trace in the weights.
TEST_F(TrainerTest, EvaluatesTheInitialWeights) {
  const Classification task("mlp");
  const std::string metrics = (folder_ / "run" / "metrics.jsonl").string();
  const auto lines_with = [&](const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream all(test::read_file(metrics));
    for (std::string line; std::getline(all, line);)
      if (line.find(text) != std::string::npos) lines.push_back(line.substr(0, line.find(",\"start\"")));
    return lines;
  };
  const auto train_to = [&](const char* steps, std::vector<std::string> more) {
    more.insert(more.end(), {"--dataset", "synthetic:1x6x6,10,64", "--max-steps", steps});
    return train(task, more);
  };
  // What such weights come to: a run that ends there evaluates them.
  ASSERT_EQ(train_to("0", {}), ExitCode::ok);
  const auto alone = lines_with("eval");
  ASSERT_EQ(alone.size(), 1U);
  EXPECT_THAT(alone.front(), HasSubstr(R"("epoch":-1,"loss":2.)"));
  std::filesystem::remove_all(folder_ / "run");
  ASSERT_EQ(train_to("12", {}), ExitCode::ok);
  const auto plain = lines_with("eval");
  ASSERT_EQ(plain.size(), 2U) << "of the epoch and at the end";
  const std::size_t weights = test::final_weights(folder_ / "run");
  std::filesystem::remove_all(folder_ / "run");

  ASSERT_EQ(train_to("4", {"--eval-first"}), ExitCode::ok);
  EXPECT_EQ(lines_with("eval").front(), alone.front());
  EXPECT_THAT(test::read_file(metrics), testing::StartsWith(R"({"event":"eval","epoch":-1)"));
  ASSERT_EQ(train_to("12", {"--eval-first"}), ExitCode::ok);
  EXPECT_EQ(lines_with(R"("epoch":-1)").size(), 1U) << "resumed, and not before the first step any more";
  EXPECT_EQ(lines_with("eval").back(), plain.back());
  EXPECT_EQ(test::final_weights(folder_ / "run"), weights);
  EXPECT_THAT(test::read_file(RunDirectory(folder_ / "run").evaluation()),
              HasSubstr(R"("epoch":1,"step":12)"));
}

// What is counted beside training changes nothing of it, and nothing is said where nobody asks.
TEST_F(TrainerTest, ReportsMetricsOfTraining) {
  const Classification task("mlp");
  std::size_t weights = 0;
  for (const bool asked : {false, true}) {
    std::filesystem::remove_all(folder_ / "run");
    std::vector<std::string> arguments = {"--dataset", "synthetic:1x6x6,10,60", "--max-steps", "20"};
    if (asked) arguments.emplace_back("--train-metrics");
    ASSERT_EQ(train(task, arguments), ExitCode::ok);
    const std::string metrics = test::read_file(folder_ / "run" / "metrics.jsonl");
    if (!asked) weights = test::final_weights(folder_ / "run");
    EXPECT_EQ(test::final_weights(folder_ / "run"), weights);
    EXPECT_EQ(metrics.find("train_accuracy") != std::string::npos, asked);
    EXPECT_EQ(metrics.find(R"("train_samples":60,)") != std::string::npos, asked);
  }
  // Resumed in the middle, an epoch has the samples of this start.
  std::filesystem::remove_all(folder_ / "run");
  for (const char* steps : {"3", "8"})
    ASSERT_EQ(train(task, {"--dataset", "synthetic:1x6x6,10,60", "--max-steps", steps, "--train-metrics"}),
              ExitCode::ok);
  EXPECT_THAT(test::read_file(folder_ / "run" / "metrics.jsonl"), HasSubstr(R"("train_samples":36)"));
}

/// A layer that learns, and a frozen one that follows it by half after each update.
class Followed final : public Module {
 public:
  Followed(Generator& generator, const std::shared_ptr<Device>& device) {
    online_ = add_module("online", std::make_shared<Linear>(36, 10, generator, device));
    target_ = add_module("target", std::make_shared<Linear>(36, 10, generator, device));
    freeze(*this, std::vector<std::string>{"target.*"});
  }
  Tensor forward(const Tensor& input) override { return (*online_)(input.flatten(1)); }
  void follow() {
    for (std::size_t i = 0; i < target_->own_parameters().size(); ++i) {
      Tensor target = target_->own_parameters()[i].second.detach();
      target.scale_in_place(0.5);
      target.add_in_place(online_->own_parameters()[i].second.detach(), 0.5);
    }
  }

 private:
  std::shared_ptr<Linear> online_, target_;
};

/// Notes each step that its loss sees; its own optimizer has a rate of 0, or of 0.25.
class Follower final : public Task {
 public:
  explicit Follower(double lr = 0) : lr_(lr) {}
  std::string name() const override { return "follower"; }
  std::unique_ptr<Module> build(std::span<const Field>, Generator& generator,
                                const std::shared_ptr<Device>& device) const override {
    return std::make_unique<Followed>(generator, device);
  }
  Tensor loss(const Tensors& outputs, const BatchTensors& batch) const override {
    return cross_entropy(outputs.front(), batch["label"]);
  }
  StepLoss step_loss() const override {
    return [this](const Tensors& outputs, const BatchTensors& batch, const TrainStep& at) {
      seen->emplace_back(at.step, at.epoch);
      return loss(outputs, batch);
    };
  }
  OptimizerFactory make_optimizer() const override {
    return [lr = lr_](const NamedTensors& parameters) {
      return std::make_unique<Sgd>(parameters, SgdOptions{.lr = lr});
    };
  }
  AfterUpdate after_update() const override {
    return [](Module& network, const TrainStep&) { dynamic_cast<Followed&>(network).follow(); };
  }

  std::shared_ptr<std::vector<std::pair<std::int64_t, std::int64_t>>> seen =
      std::make_shared<std::vector<std::pair<std::int64_t, std::int64_t>>>();

 private:
  double lr_;
};

// 64 samples in batches of 8: the ninth step is the second epoch's first.
TEST_F(TrainerTest, TellsTheLossOfTheStepAndFollowsEachUpdate) {
  const Follower task;
  const auto run = [&](const char* steps) {
    EXPECT_EQ(train(task, {"--dataset", "synthetic:1x6x6,10,64", "--max-steps", steps, "--log-every", "1"}),
              ExitCode::ok);
    const auto saved = CheckpointStore(folder_ / "run" / "checkpoints", 0, log_).latest();
    return load_tensors(saved->model, make_device("cpu"));
  };
  const auto find = [](const NamedTensors& tensors, const std::string& name) {
    for (const auto& [found, tensor] : tensors) {
      if (found == name) return tensor.to_vector<double>();
    }
    throw UsageError("no tensor " + name);
  };
  const NamedTensors first = run("1"), last = run("10");
  using Steps = std::vector<std::pair<std::int64_t, std::int64_t>>;
  EXPECT_EQ(*task.seen,
            (Steps{{1, 0}, {2, 0}, {3, 0}, {4, 0}, {5, 0}, {6, 0}, {7, 0}, {8, 0}, {9, 1}, {10, 1}}));
  const auto online = find(last, "online.weight"), before = find(first, "target.weight"),
             after = find(last, "target.weight");
  EXPECT_EQ(online, find(first, "online.weight")) << "its rate is 0";
  for (std::size_t i = 0; i < online.size(); ++i)
    EXPECT_NEAR(after[i], online[i] + (before[i] - online[i]) / 512, 1e-6) << "nine updates later";
}

/// Its loss in training is that of a group of workers, twice the other one; `beside` another one of the step.
class Grouped final : public Task {
 public:
  explicit Grouped(bool beside) : beside_(beside) {}
  std::string name() const override { return "grouped"; }
  std::unique_ptr<Module> build(std::span<const Field> fields, Generator& generator,
                                const std::shared_ptr<Device>& device) const override {
    return std::make_unique<Sequential>(std::vector<std::shared_ptr<Module>>{
        std::make_shared<Flatten>(),
        std::make_shared<Linear>(fields[0].shape.product(), 10, generator, device)});
  }
  Tensor loss(const Tensors& outputs, const BatchTensors& batch) const override {
    return cross_entropy(outputs.front(), batch["label"]);
  }
  StepLoss step_loss() const override {
    if (!beside_) return {};
    return [this](const Tensors& outputs, const BatchTensors& batch, const TrainStep&) {
      return loss(outputs, batch);
    };
  }
  GroupLoss group_loss() const override {
    return [this](const Tensors& outputs, const BatchTensors& batch, const TrainStep& at,
                  const RankGroup& group) {
      EXPECT_EQ(group.communicator.size(), 1);
      EXPECT_EQ(at.step, ++steps);
      return 2 * loss(outputs, batch);
    };
  }
  mutable std::int64_t steps = 0;

 private:
  bool beside_;
};

TEST_F(TrainerTest, ALossOfTheGroupIsOfTrainingAlone) {
  const Grouped task(false);
  EXPECT_EQ(train(task, {"--dataset", "synthetic:1x6x6,10,64", "--max-steps", "3", "--log-every", "1"}),
            ExitCode::ok);
  EXPECT_EQ(task.steps, 3);
  EXPECT_NEAR(test::losses(folder_ / "run").front(), 2 * std::log(10), 0.8);
}

TEST_F(TrainerTest, ALossOfTheGroupBesideAnotherIsRefused) {
  const std::string refusal = test::message_of([&] {
    train(Grouped(true), {"--dataset", "synthetic:1x6x6,10,64", "--max-steps", "1"});
  });
  EXPECT_THAT(refusal,
              HasSubstr("task grouped: expected a group_loss() alone, got one beside a step_loss()"));
}

TEST_F(TrainerTest, AnOptimizerOfTheTasksOwnHasItsRateAndTheSchedule) {
  const Follower task(0.25);
  EXPECT_EQ(train(task, {"--dataset", "synthetic:1x6x6,10,64", "--max-steps", "4", "--log-every", "1",
                         "--lr-schedule", "linear"}),
            ExitCode::ok);
  EXPECT_THAT(test::read_file(RunDirectory(folder_ / "run").metrics()),
              AllOf(HasSubstr(R"("lr":0.25)"), HasSubstr(R"("lr":0.1875)"), HasSubstr(R"("lr":0.0625)")));
}

// Shells let 1,024 files be open, and a hard limit says how many may be.
TEST(RunMain, LetsMoreFilesBeOpen) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit limit = before;
  limit.rlim_cur = std::min<rlim_t>(before.rlim_max, 128);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(run_main("test",
                     [&] {
                       ::getrlimit(RLIMIT_NOFILE, &limit);
                       return ExitCode::ok;
                     }),
            0);
  EXPECT_EQ(limit.rlim_cur, std::min<rlim_t>(before.rlim_max, 65'536));
  ::setrlimit(RLIMIT_NOFILE, &before);
}

}  // namespace
}  // namespace dtrain
