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

TEST(Trainer, SavesAndResumesBuffersThatAreMeantToBeInfinite) {
  const test::TempDir folder;
  const MaskedClassification task;
  const Environment environment;
  const StopSignal stop_signal;
  WorkerLog log("test");
  Tracer tracer(std::nullopt, 0, log);
  const auto communicator = make_communicator(Backend::self, {}, log);
  const auto device = make_device("cpu");
  for (const char* steps : {"2", "4"}) {  // the second run resumes from the first one's checkpoint
    const Options options = resolve_options("test", train_options(),
                                            {"--dataset", "synthetic:1x6x6,10,64", "--batch-size", "8",
                                             "--max-steps", steps, "--run-dir", (folder / "run").string()},
                                            environment);
    const TrainConfig config = make_train_config(options, task.name(), 1);
    StepClock clock;
    const auto strategy = make_data_parallel({*communicator, device, config.collective_timeout, {&clock}});
    Trainer trainer(config, {task, *strategy, *communicator, device, options, environment, stop_signal, log,
                             tracer, clock});
    EXPECT_EQ(trainer.run(), ExitCode::ok);
    const auto saved = CheckpointStore(folder / "run" / "checkpoints", 0, log).latest();
    ASSERT_TRUE(saved);
    EXPECT_EQ(std::to_string(saved->state.step), steps);
  }
}

// What the report shows of samples is there after the first step and an evaluation.
TEST(Trainer, KeepsPicturesForTheReport) {
  const test::TempDir folder;
  const Classification task("mlp", {.mixing = {.mixup = 1}});
  const Environment environment;
  const StopSignal stop_signal;
  WorkerLog log("test");
  Tracer tracer(std::nullopt, 0, log);
  const auto communicator = make_communicator(Backend::self, {}, log);
  const auto device = make_device("cpu");
  const Options options = resolve_options("test", train_options(),
                                          {"--dataset", "synthetic:3x20x24,10,64", "--batch-size", "8",
                                           "--max-steps", "2", "--run-dir", (folder / "run").string()},
                                          environment);
  const TrainConfig config = make_train_config(options, task.name(), 1);
  StepClock clock;
  const auto strategy = make_data_parallel({*communicator, device, config.collective_timeout, {&clock}});
  Trainer trainer(config, {task, *strategy, *communicator, device, options, environment, stop_signal, log,
                           tracer, clock});
  EXPECT_EQ(trainer.run(), ExitCode::ok);
  const RunDirectory run(folder / "run");
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
