// The engine with tasks and strategies that the library does not know: a user's loss, samples that weigh
// differently, a strategy around a strategy, and what is refused.
#include "training/engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/factory.h"
#include "parallel/forms.h"
#include "runtime/base/error.h"
#include "runtime/nn/containers.h"
#include "runtime/nn/dropout.h"
#include "runtime/nn/layers.h"
#include "runtime/optim/sgd.h"
#include "tests/support/temp_dir.h"
#include "training/train_main.h"

namespace dtrain {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kFeatures = 3;

/// Samples x [3], y [], and n: how many units the sample has.
class Numbers final : public Source {
 public:
  std::string name() const override { return "numbers"; }
  std::int64_t size() const noexcept override { return 8; }
  std::span<const Field> fields() const noexcept override { return fields_; }
  void read(std::int64_t index, std::span<const View> outputs, KeyedGenerator&) const override {
    for (std::int64_t i = 0; i < kFeatures; ++i)
      outputs[0].as<float>()[i] = static_cast<float>((index * 7 + i * 3) % 5) - 2;
    *outputs[1].as<float>() = static_cast<float>(index % 3);
    *outputs[2].as<float>() = static_cast<float>(1 + index % 4);
  }

 private:
  std::vector<Field> fields_{{.name = "x", .shape = {kFeatures}}, {.name = "y"}, {.name = "n"}};
};

/// Squared error; with `weighted`, sample i counts n times.
class Squares : public Task {
 public:
  explicit Squares(bool weighted = false) : weighted_(weighted) {}
  std::string name() const override { return "squares"; }
  Splits open(const DataRequest&) const override {
    return {std::make_shared<Numbers>(), std::make_shared<Numbers>()};
  }
  std::unique_ptr<Module> build(std::span<const Field>, Generator& generator,
                                const std::shared_ptr<Device>& device) const override {
    return std::make_unique<Linear>(kFeatures, 1, generator, device);
  }
  Tensor loss(const Tensors& outputs, const BatchTensors& batch) const override {
    const Tensor error = square(outputs[0].flatten() - batch["y"]);
    if (!weighted_) return mean(error);
    return sum(error * batch["n"]) / sum(batch["n"]);
  }
  double units(const Batch& batch) const override {
    if (!weighted_) return static_cast<double>(batch.size());
    double total = 0;
    for (std::int64_t i = 0; i < batch.size(); ++i) total += batch["n"].as<float>()[i];
    return total;
  }
  bool units_vary(std::span<const Field> /*fields*/) const override { return weighted_; }

 private:
  bool weighted_;
};

/// Hands the strategy inside it passes of its own: the network is fed twice the inputs, and the outputs are
/// halved.
class Scaled final : public Strategy {
 public:
  explicit Scaled(std::unique_ptr<Strategy> inner) : Strategy(inner->traits()), inner_(std::move(inner)) {}

  void prepare(const ModelFactory& factory, const Deadline& deadline) override {
    inner_->prepare(factory, deadline);
    set_prepared(inner_->module(), inner_->optimizers());
  }
  void load(const CheckpointFiles& state, const Deadline& deadline) override {
    inner_->load(state, deadline);
  }
  void begin(const Deadline& deadline) override { inner_->begin(deadline); }
  void step(MicroBatches& passes, Exchange exchange) override {
    ScaledPasses scaled(passes);
    inner_->step(scaled, exchange);
  }
  void sync_state(const Deadline& deadline) override { inner_->sync_state(deadline); }
  Tensors evaluate(const Tensors& inputs) override { return inner_->evaluate(inputs); }
  RankState held() override { return inner_->held(); }
  void exchange_alone(const Deadline& deadline) override { inner_->exchange_alone(deadline); }

 private:
  class ScaledPasses final : public MicroBatches {
   public:
    explicit ScaledPasses(MicroBatches& outer) : outer_(outer) {}
    std::size_t count() const noexcept override { return outer_.count(); }
    Tensors inputs(std::size_t i) override { return {outer_.inputs(i)[0] * 2.0}; }
    Tensor loss(std::size_t i, const Tensors& outputs) override { return outer_.loss(i, {outputs[0] * 0.5}); }
    double weight(std::size_t i) const override { return outer_.weight(i); }
    void losses_done() override { outer_.losses_done(); }
    void gradients_done() override { outer_.gradients_done(); }

   private:
    MicroBatches& outer_;
  };
  std::unique_ptr<Strategy> inner_;
};

/// One worker that takes `passes` passes a step over all eight samples.
struct Worker {
  Worker(const Task& learned, std::size_t count, bool wrapped = false, const GradientLimits& limits = {})
      : task(learned), passes(count) {
    strategy = make_data_parallel(StrategyContext{*communicator, device, std::chrono::seconds(30), {&clock}});
    if (wrapped) strategy = std::make_unique<Scaled>(std::move(strategy));
    engine = std::make_unique<Engine>(
        task, *strategy, *communicator, device,
        EngineOptions{.precision = Precision::fp32, .patience = std::chrono::seconds(30), .timer = {&clock}},
        log);
    engine->prepare({.build =
                         [&](const std::shared_ptr<Device>& where) {
                           Generator generator(1);
                           return task.build(source->fields(), generator, where);
                         },
                     .make_optimizer =
                         [](const NamedTensors& parameters) {
                           return std::make_unique<Sgd>(parameters, SgdOptions{.lr = 0.05});
                         },
                     .limits = limits},
                    source->fields(), Deadline::never());
    strategy->begin(Deadline::never());
  }

  StepReport step() {
    Loader loader(source, device, {.batch_size = source->size() / static_cast<std::int64_t>(passes)});
    std::vector<std::int64_t> order{0, 1, 2, 3, 4, 5, 6, 7};
    loader.start(order, 0);
    engine->step({.report = {.record = {.step = ++steps}, .samples = source->size()}, .passes = passes},
                 [&] { return loader.next(Deadline::never()).value(); });
    return engine->take_report();
  }

  std::vector<float> weights() {
    std::vector<float> all;
    for (const auto& [name, tensor] : strategy->module().state_dict()) {
      for (const float value : tensor.to_vector<float>()) all.push_back(value);
    }
    return all;
  }

  const Task& task;
  std::size_t passes;
  NullLog log;
  std::shared_ptr<Device> device = make_device("cpu");
  std::shared_ptr<const Source> source = task.open({}).train;
  std::unique_ptr<Communicator> communicator = make_communicator(Backend::self, {}, log);
  StepClock clock;
  std::unique_ptr<Strategy> strategy;
  std::unique_ptr<Engine> engine;
  std::int64_t steps = 0;
};

void expect_close(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-6) << i;
}

TEST(Engine, LearnsAUsersTask) {
  const Squares task;
  Worker worker(task, 1);
  const double first = worker.step().record.loss;
  double last = first;
  for (int i = 0; i < 200; ++i) last = worker.step().record.loss;
  EXPECT_GT(first, 2 * last);
  EXPECT_EQ(worker.clock.steps(), 0);  // the trainer's to count
}

TEST(Engine, PassesGiveTheGradientsOfTheWholeBatch) {
  const Squares task;
  Worker whole(task, 1), parts(task, 4);
  EXPECT_NEAR(whole.step().record.loss, parts.step().record.loss, 1e-6);
  expect_close(whole.weights(), parts.weights());
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double squares = 0;
  for (std::size_t i = 0; i < a.size(); ++i) squares += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(squares);
}

TEST(Engine, GradientsAreLimitedBeforeTheUpdate) {
  const Squares task;
  Worker free(task, 1), shortened(task, 1, false, {.norm = 0.01, .value = {}}),
      cut(task, 4, false, {.norm = {}, .value = 1e-3});
  const auto start = free.weights();
  for (Worker* worker : {&free, &shortened, &cut}) worker->step();
  EXPECT_GT(distance(free.weights(), start), 0.05 * 0.02);
  EXPECT_NEAR(distance(shortened.weights(), start), 0.05 * 0.01, 1e-6);
  for (std::size_t i = 0; i < start.size(); ++i)
    EXPECT_LT(std::abs(cut.weights()[i] - start[i]), 0.05 * 1e-3 + 1e-6);
}

TEST(Engine, UnitsWeighTheSameWhereverTheyAre) {
  const Squares task(/*weighted=*/true);
  Worker whole(task, 1), parts(task, 4);
  EXPECT_NEAR(whole.step().record.loss, parts.step().record.loss, 1e-6);
  expect_close(whole.weights(), parts.weights());
  // And they do weigh: the plain mean moves the weights elsewhere.
  const Squares plain;
  Worker other(plain, 1);
  other.step();
  EXPECT_GT(std::abs(other.weights()[0] - whole.weights()[0]), 1e-4);
}

/// Samples with an even number have no unit.
class SomeNumbers final : public Squares {
 public:
  SomeNumbers() : Squares(true) {}
  double units(const Batch& batch) const override {
    double total = 0;
    for (const std::int64_t index : batch.indices) total += static_cast<double>(index % 2);
    return total;
  }
  Tensor loss(const Tensors& outputs, const BatchTensors& batch) const override {
    const Tensor counts = remainder(batch["n"]);
    return sum(square(outputs[0].flatten() - batch["y"]) * counts) / sum(counts);
  }

 private:
  /// 1 for samples with an odd number, which have 2 or 4 units, else 0.
  static Tensor remainder(const Tensor& n) {
    std::vector<float> odd;
    for (const float units : n.to_vector<float>()) odd.push_back(units == 2 || units == 4 ? 1.0F : 0.0F);
    return Tensor::from_data(std::span<const float>(odd), n.shape(), n.shared_device());
  }
};

TEST(Engine, APassWithoutUnitsAddsNothing) {
  const SomeNumbers task;
  Worker whole(task, 1), each(task, 8);
  for (int i = 0; i < 3; ++i) {
    const double loss = whole.step().record.loss;
    EXPECT_TRUE(std::isfinite(loss));
    EXPECT_NEAR(loss, each.step().record.loss, 1e-6) << i;
  }
  expect_close(whole.weights(), each.weights());
}

/// The loss is that of Squares; with `broken`, its gradient is not a number.
class NoSlope final : public Squares {
 public:
  bool broken = false;
  Tensor loss(const Tensors& outputs, const BatchTensors& batch) const override {
    const Tensor loss = Squares::loss(outputs, batch);
    return broken ? loss + mean(sqrt(outputs[0] * 0.0)) : loss;
  }
};

TEST(Engine, GradientsThatAreNotFiniteEndTheRunInTheirStep) {
  for (const std::size_t passes : {1, 4}) {
    NoSlope task;
    Worker worker(task, passes);
    worker.step();
    task.broken = true;
    try {
      worker.step();
      FAIL() << "nobody looked at the gradients";
    } catch (const LossError& error) {
      EXPECT_EQ(error.where(), NotFinite::gradients);
      EXPECT_EQ(error.step(), 2);
      EXPECT_TRUE(std::isfinite(error.loss()));
      EXPECT_THAT(error.what(), HasSubstr("gradients are not finite"));
    }
  }
}

TEST(Engine, AStrategyMayWrapAnother) {
  const Squares task;
  Worker plain(task, 2), wrapped(task, 2, /*wrapped=*/true);
  Loader loader(plain.source, plain.device, {.batch_size = 8});
  loader.start({0, 1, 2, 3, 4, 5, 6, 7}, 0);
  const Batch all = loader.next(Deadline::never()).value();
  const BatchTensors batch = to_tensors(all, plain.device);
  const Tensor outputs = plain.strategy->module()(batch["x"] * 2.0) * 0.5;
  const double expected = task.loss({outputs}, batch).item();
  EXPECT_NEAR(wrapped.step().record.loss, expected, 1e-6);
  EXPECT_GT(std::abs(plain.step().record.loss - expected), 1e-3);  // the bias is not doubled on the way in
}

/// Squares by a network that drops half of its hidden values.
class Dropped final : public Squares {
 public:
  std::unique_ptr<Module> build(std::span<const Field>, Generator& generator,
                                const std::shared_ptr<Device>& device) const override {
    const auto key = std::make_shared<DropoutKey>(7, device);
    return std::make_unique<Sequential>(std::vector<std::shared_ptr<Module>>{
        std::make_shared<Linear>(kFeatures, 16, generator, device), std::make_shared<Dropout>(0.5, key),
        std::make_shared<Linear>(16, 1, generator, device)});
  }
};

TEST(Engine, DropsTheSameValuesHoweverABatchIsCut) {
  const Dropped task;
  Worker whole(task, 1), parts(task, 4);
  for (int i = 0; i < 3; ++i) {
    const double loss = whole.step().record.loss;
    EXPECT_NEAR(loss, parts.step().record.loss, 1e-6) << i;
  }
  expect_close(whole.weights(), parts.weights());
}

class TwoLosses final : public Task {
 public:
  std::string name() const override { return "two losses"; }
  Splits open(const DataRequest&) const override {
    return {std::make_shared<Numbers>(), std::make_shared<Numbers>()};
  }
  std::unique_ptr<Module> build(std::span<const Field>, Generator& generator,
                                const std::shared_ptr<Device>& device) const override {
    return std::make_unique<Linear>(kFeatures, 1, generator, device);
  }
  Tensor loss(const Tensors& outputs, const BatchTensors&) const override { return outputs[0]; }
};

TEST(Engine, RefusesALossThatIsNotOneNumber) {
  const TwoLosses task;
  Worker worker(task, 1);
  const std::vector<float> before = worker.weights();
  try {
    worker.step();
    FAIL() << "eight losses were taken for one";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("task two losses: expected a loss of one floating element"));
    EXPECT_THAT(error.what(), HasSubstr("[8, 1]"));
  }
  EXPECT_EQ(worker.weights(), before);
}

TEST(TrainMain, LeavesNothingOfATaskThatCannotBeTrained) {
  const test::TempDir folder;
  const std::string run = folder / "run";
  const TrainProgram program{.name = "two_losses", .options = {}, .make_task = [](const Options&) {
                               return std::make_shared<TwoLosses>();
                             }};
  const std::vector<std::string> arguments = {"--run-dir", run,           "--global-batch-size",
                                              "4",         "--max-steps", "2"};
  EXPECT_THROW(run_training(program, arguments, {}), UsageError);
  EXPECT_FALSE(std::filesystem::exists(run));
  std::filesystem::create_directory(run);  // somebody else's
  EXPECT_THROW(run_training(program, arguments, {}), UsageError);
  EXPECT_TRUE(std::filesystem::exists(run));
}

TEST(TrainMain, LeavesNothingWhereResumeNamesNoCheckpoint) {
  const test::TempDir folder;
  const std::string run = folder / "run", other = folder / "other";
  const TrainProgram program{.name = "two_losses", .options = {}, .make_task = [](const Options&) {
                               return std::make_shared<TwoLosses>();
                             }};
  const std::vector<std::string> arguments = {"--run-dir", run, "--resume", other};
  EXPECT_THROW(run_training(program, arguments, {}), UsageError);
  EXPECT_FALSE(std::filesystem::exists(run));
  std::filesystem::create_directories(std::filesystem::path(other) / "checkpoints" / "step-00000002");
  EXPECT_THROW(run_training(program, arguments, {}), DataError);
  EXPECT_FALSE(std::filesystem::exists(run));
}

}  // namespace
}  // namespace dtrain
