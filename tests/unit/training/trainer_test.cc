// The whole trainer, alone: what it may save.
#include "training/loop/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "collectives/factory.h"
#include "models/tasks/classification.h"
#include "parallel/forms.h"
#include "runtime/metrics/report/pictures.h"
#include "tests/support/temp_dir.h"
#include "training/options/train_flags.h"

namespace dtrain {
namespace {

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
    const TrainConfig config = make_train_config(options, task.name(), 1);
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

}  // namespace
}  // namespace dtrain
