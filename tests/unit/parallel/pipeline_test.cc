// Pipelines, with ranks as threads: schedules, the bits of gradient accumulation, time that stages wait
// against the formula, evaluation and state.
#include "parallel/pipeline/pipeline_strategy.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <thread>

#include "collectives/thread_ranks.h"
#include "parallel/data/data_parallel_strategy.h"
#include "parallel/mesh.h"
#include "runtime/autograd/node.h"
#include "runtime/base/error.h"
#include "runtime/nn/layers.h"
#include "runtime/optim/sgd.h"
#include "tests/support/message_of.h"

namespace dtrain {
namespace {

using testing::HasSubstr;

const Deadline kNever = Deadline::never();
constexpr auto kPatience = std::chrono::seconds(30);
constexpr auto kOneByOne = PipelineSchedule::one_forward_one_backward;

TEST(PipelineSchedule, EachMicroBatchGoesOnceForwardAndThenOnceBackward) {
  for (const auto schedule : {PipelineSchedule::gpipe, kOneByOne}) {
    for (const int stages : {1, 2, 3, 4}) {
      for (const int count : {1, 2, 3, 8}) {
        for (int stage = 0; stage < stages; ++stage) {
          const auto actions = stage_actions(schedule, stage, stages, count);
          int forwards = 0, backwards = 0;
          for (const StageAction& action : actions) {
            int& next = action.kind == StageAction::Kind::forward ? forwards : backwards;
            EXPECT_EQ(action.micro_batch, next++);
            EXPECT_LE(backwards, forwards);
          }
          EXPECT_EQ(forwards, count);
          EXPECT_EQ(backwards, count);
          const int alive = schedule == PipelineSchedule::gpipe ? count : std::min(stages - stage, count);
          EXPECT_EQ(most_alive(actions), alive) << stages << " stages, stage " << stage;
        }
      }
    }
  }
  EXPECT_DOUBLE_EQ(idle_share(4, 8), 3.0 / 11);
}

TEST(PipelineSchedule, StagesAreCutEvenly) {
  EXPECT_EQ(cut_evenly(std::vector<double>{1, 1, 1, 1}, 2), (std::vector<std::size_t>{2, 4}));
  EXPECT_EQ(cut_evenly(std::vector<double>{5, 1, 1, 1}, 2), (std::vector<std::size_t>{1, 4}));
  EXPECT_EQ(cut_evenly(std::vector<double>{1, 1, 1, 9}, 2), (std::vector<std::size_t>{3, 4}));
  EXPECT_THAT(test::message_of([] {
                cut_evenly(std::vector<double>{1, 1, 1}, 4);
              }),
              HasSubstr("one part for each of 4 stages, got 3 parts"));
}

/// Linear layers with relu between them, and a batch norm in the middle; parts may sleep.
class Layers final : public Module, public Chained {
 public:
  Layers(int count, Duration sleep, const std::shared_ptr<Device>& device) : sleep_(sleep) {
    Generator generator(11);
    for (int i = 0; i < count; ++i)
      add_module(fmt::format("fc{}", i), std::make_shared<Linear>(8, 8, generator, device));
  }
  Tensor forward(const Tensor& x) override {
    Tensor y = x;
    for (const ChainPart& part : chain()) y = part.forward(y);
    return y;
  }
  std::vector<ChainPart> chain() const override {
    std::vector<ChainPart> chain;
    for (const auto& [name, layer] : children()) {
      chain.push_back({{{name, layer}}, [layer = layer, sleep = sleep_](const Tensor& x) {
                         std::this_thread::sleep_for(sleep);
                         return slow(tanh((*layer)(x)), sleep);
                       }});
    }
    return chain;
  }

 private:
  /// x, whose backward sleeps.
  static Tensor slow(const Tensor& x, Duration sleep) {
    if (sleep.count() == 0) return x;
    return record("slow", x.detach(), {x}, [sleep](Tensor grad, GradSink& sink) {
      std::this_thread::sleep_for(sleep);
      sink.deliver(0, std::move(grad));
    });
  }
  Duration sleep_;
};

class MicroBatches final : public Passes {
 public:
  MicroBatches(int step, DataShare share, std::size_t count, std::shared_ptr<Device> device)
      : step_(step), share_(share), count_(count), device_(std::move(device)) {}
  std::size_t count() const noexcept override { return count_; }
  Tensors inputs(std::size_t i) override {
    Generator generator(1000U * static_cast<unsigned>(step_) + 100U * static_cast<unsigned>(share_.rank) +
                        static_cast<unsigned>(i));
    return {Tensor::randn({2, 8}, generator, device_)};
  }
  Tensor loss(std::size_t, const Tensors& outputs) override {
    return mean(mul(outputs[0] + 1.0, outputs[0] + 1.0));
  }
  double weight(std::size_t) const override { return 1.0 / static_cast<double>(count_); }
  void losses_done() override { ++losses; }
  void gradients_done() override { ++gradients; }
  int losses = 0, gradients = 0;

 private:
  int step_;
  DataShare share_;
  std::size_t count_;
  std::shared_ptr<Device> device_;
};

TrainingParts parts_of(int layers, std::optional<double> norm, Duration sleep = {}) {
  GradientLimits limits;
  limits.norm = norm;
  return {.build = [=](const std::shared_ptr<Device>& device) -> std::unique_ptr<Module> {
            return std::make_unique<Layers>(layers, sleep, device);
          },
          .make_optimizer = [](const NamedTensors& parameters) -> std::unique_ptr<Optimizer> {
            return std::make_unique<Sgd>(parameters, SgdOptions{.lr = 0.2, .momentum = 0.9});
          },
          .limits = limits};
}

using State = std::map<std::string, std::vector<float>>;

State accumulated(int ranks, int layers, std::size_t count, std::optional<double> norm) {
  NullLog log;
  State state;
  run_thread_ranks(ranks, {}, log, [&](Communicator& communicator) {
    const auto device = make_device("cpu");
    StepClock clock;
    DataParallelStrategy strategy({communicator, device, kPatience, {&clock}});
    strategy.prepare(parts_of(layers, norm), kNever);
    strategy.begin(kNever);
    for (int step = 0; step < 3; ++step) {
      MicroBatches passes(step, strategy.share(), count, device);
      strategy.step(passes, Exchange::all);
    }
    if (communicator.rank() != 0) return;
    for (const auto& [name, tensor] : strategy.module().state_dict()) state[name] = tensor.to_vector<float>();
  });
  return state;
}

struct Piped {
  State state;
  std::map<std::string, int> saved;  ///< by how many ranks
  std::vector<PipelineStats> stats;  ///< by stage, of the first copies
  std::vector<float> outputs;
};

Piped piped(int copies, int stages, int layers, std::size_t count, PipelineSchedule schedule,
            std::optional<double> norm = std::nullopt, Duration sleep = {}, int steps = 3) {
  NullLog log;
  std::mutex mutex;
  Piped piped;
  piped.stats.resize(static_cast<std::size_t>(stages));
  run_thread_ranks(copies * stages, {}, log, [&](Communicator& communicator) {
    const auto device = make_device("cpu");
    StepClock clock;
    const Mesh mesh(communicator, {{"dp", copies}, {"pp", stages}}, kNever);
    const std::string axis[] = {"pp"};
    const auto gradients = mesh.make_group(axis, kNever);
    PipelineStrategy strategy({communicator, device, kPatience, {&clock}},
                              {mesh.group("pp"), *gradients, mesh.group("dp")}, schedule);
    strategy.prepare(parts_of(layers, norm, sleep), kNever);
    strategy.begin(kNever);
    for (int step = 0; step < steps; ++step) {
      MicroBatches passes(step, strategy.share(), count, device);
      strategy.step(passes, Exchange::all);
      EXPECT_EQ(passes.losses, 1);
      EXPECT_EQ(passes.gradients, 1);
    }
    strategy.settle(kNever);
    strategy.module().eval();
    const Tensors outputs = strategy.evaluate({Tensor::full({1, 8}, 0.5, device)});
    EXPECT_EQ(outputs.empty(), !strategy.holds_outputs());
    EXPECT_EQ(strategy.holds_outputs(), mesh.coordinate("pp") + 1 == stages);
    const std::lock_guard lock(mutex);
    if (!outputs.empty()) piped.outputs = outputs[0].to_vector<float>();
    for (const SavedPart& part : strategy.save().model) {
      piped.state[part.name] = part.tensor.to_vector<float>();
      ++piped.saved[part.name];
    }
    if (mesh.coordinate("dp") == 0)
      piped.stats[static_cast<std::size_t>(mesh.coordinate("pp"))] = strategy.stats();
  });
  return piped;
}

TEST(Pipeline, GivesTheBitsOfAccumulation) {
  for (const auto& [stages, count] : {std::pair{1, 2}, {2, 4}, {4, 3}, {3, 8}}) {
    const State expected = accumulated(1, 5, static_cast<std::size_t>(count), std::nullopt);
    for (const auto schedule : {PipelineSchedule::gpipe, kOneByOne}) {
      const Piped got = piped(1, stages, 5, static_cast<std::size_t>(count), schedule);
      EXPECT_EQ(got.state, expected) << stages << " stages, " << count << " micro-batches";
      for (const auto& [name, times] : got.saved) EXPECT_EQ(times, 1) << name;
      const auto alive = [&](int stage) { return got.stats[static_cast<std::size_t>(stage)].most_alive; };
      for (int stage = 0; stage < stages; ++stage)
        EXPECT_EQ(alive(stage), schedule == kOneByOne ? std::min(stages - stage, count) : count);
    }
  }
}

TEST(Pipeline, GoesTogetherWithDataParallelismAndLimits) {
  const State expected = accumulated(2, 4, 4, 0.01);
  const Piped got = piped(2, 2, 4, 4, kOneByOne, 0.01);
  ASSERT_EQ(got.state.size(), expected.size());
  for (const auto& [name, values] : expected) {
    EXPECT_EQ(got.saved.at(name), 1) << name << ": one copy writes it";
    for (std::size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(got.state.at(name)[i], values[i], 1e-6);
  }
  EXPECT_NE(accumulated(2, 4, 4, std::nullopt), expected) << "a limit that bites";
  EXPECT_EQ(got.outputs.size(), 8U);
}

// Stages that only sleep, so that two cores can show four of them.
TEST(Pipeline, WaitsAsLongAsTheFormulaSays) {
  for (const int count : {8, 16}) {
    const Piped got = piped(1, 4, 4, static_cast<std::size_t>(count), kOneByOne, std::nullopt,
                            std::chrono::milliseconds(4), 2);
    double waiting = 0, steps = 0;
    for (const PipelineStats& stats : got.stats) {
      waiting += std::chrono::duration<double>(stats.waiting).count();
      steps += std::chrono::duration<double>(stats.steps).count();
    }
    // Not less than the formula but for time that sends take, and more on a busy machine.
    EXPECT_GT(waiting / steps, idle_share(4, count) - 0.1);
    EXPECT_LT(waiting / steps, idle_share(4, count) + 0.25) << count << " micro-batches";
    RecordProperty(fmt::format("idle_{}", count), fmt::format("{:.3f}", waiting / steps));
  }
}

TEST(Pipeline, SaysWhatCannotBe) {
  EXPECT_THAT(test::message_of([] { piped(1, 4, 3, 2, kOneByOne); }),
              HasSubstr("one part for each of 4 stages, got 3 parts"));
}

}  // namespace
}  // namespace dtrain
