#include "tests/bench/pipeline/idle.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <thread>

#include "collectives/thread_ranks.h"
#include "parallel/forms.h"
#include "parallel/span_of.h"
#include "runtime/autograd/node.h"
#include "runtime/autograd/ops.h"
#include "runtime/nn/layers.h"
#include "runtime/optim/sgd.h"

namespace dtrain::bench {
namespace {

constexpr auto kPatience = std::chrono::seconds(60);
constexpr int kWidth = 8;

/// x, whose making takes `time`, and whose backward takes as long.
Tensor slow(const Tensor& x, Duration time) {
  std::this_thread::sleep_for(time);
  return record("slow", x.detach(), {x}, [time](Tensor grad, GradSink& sink) {
    std::this_thread::sleep_for(time);
    sink.deliver(0, std::move(grad));
  });
}

class Sleepers final : public Module, public Chained {
 public:
  Sleepers(int parts, Duration time, const std::shared_ptr<Device>& device) : time_(time) {
    Generator generator(1);
    for (int i = 0; i < parts; ++i)
      add_module(fmt::format("fc{}", i), std::make_shared<Linear>(kWidth, kWidth, generator, device));
  }
  Tensor forward(const Tensor& x) override { return through(chain(), x); }
  std::vector<LayerUnit> chain() const override {
    std::vector<LayerUnit> chain;
    for (const auto& [name, layer] : children()) {
      chain.push_back({{{name, layer}},
                       [layer = layer, time = time_](const Tensor& x) { return slow((*layer)(x), time); }});
    }
    return chain;
  }

 private:
  Duration time_;
};

class EqualPasses final : public MicroBatches {
 public:
  EqualPasses(int count, const std::shared_ptr<Device>& device)
      : count_(static_cast<std::size_t>(count)), x_(Tensor::ones({2, kWidth}, device)) {}
  std::size_t count() const noexcept override { return count_; }
  Tensors inputs(std::size_t) override { return {x_}; }
  Tensor loss(std::size_t, const Tensors& outputs) override { return mean(outputs[0]); }
  double weight(std::size_t) const override { return 1.0 / static_cast<double>(count_); }
  void losses_done() override {}
  void gradients_done() override {}

 private:
  std::size_t count_;
  Tensor x_;
};

double in_seconds(Duration time) { return std::chrono::duration<double>(time).count(); }

/// One stage's steps; the same result on all.
Idle run_stage(Communicator& stages, const IdleSetting& setting, int steps, double enough) {
  const Deadline never = Deadline::never();
  const auto device = make_device("cpu");
  StepClock clock;
  const Mesh mesh(stages, {{"dp", 1}, {"pp", setting.stages}}, never);
  const bool interleaved = setting.schedule == PipelineSchedule::interleaved;
  const PipelineLinks links(mesh, interleaved ? PipelineShape::ring : PipelineShape::line, never);
  const auto model = make_pipeline({stages, device, kPatience, {&clock}}, {links, mesh.group("dp")},
                                   {.stages = {.schedule = setting.schedule, .chunks = setting.chunks}});
  Strategy& strategy = *model;
  const auto& schedule = dynamic_cast<const Pipeline&>(model->schedule());
  strategy.prepare({.build = [&](const std::shared_ptr<Device>& on) -> std::unique_ptr<Module> {
                      return std::make_unique<Sleepers>(setting.stages * setting.chunks,
                                                        setting.pass / setting.chunks, on);
                    },
                    .make_optimizer = [](const NamedTensors& parameters) -> std::unique_ptr<Optimizer> {
                      return std::make_unique<Sgd>(parameters, SgdOptions{.lr = 0.01});
                    }},
                   never);
  strategy.begin(never);
  Idle idle;
  for (int step = 0; step < steps && idle.share > enough; ++step) {
    EqualPasses passes(setting.micro_batches, device);
    const Duration before = schedule.stats().computing;
    stages.barrier("step begins")->wait(never);
    const TimePoint start = steady_clock().now();
    strategy.step(passes, Exchange::all);
    stages.barrier("step ends")->wait(never);
    double times[] = {in_seconds(schedule.stats().computing - before),
                      in_seconds(steady_clock().now() - start)};
    stages.all_reduce({.data = times, .count = 2, .dtype = DType::f64}, ReduceOp::sum, "times")->wait(never);
    idle.share = std::min(idle.share, 1 - times[0] / times[1]);
  }
  std::vector<std::int64_t> alive(static_cast<std::size_t>(setting.stages));
  std::int64_t own = schedule.stats().most_alive;
  stages
      .all_gather({.data = &own, .count = 1, .dtype = DType::i64},
                  {.data = alive.data(), .count = alive.size(), .dtype = DType::i64}, "most alive")
      ->wait(never);
  idle.most_alive.assign(alive.begin(), alive.end());
  return idle;
}

}  // namespace

Idle measure_idle(const IdleSetting& setting, int steps, double enough) {
  NullLog log;
  Idle idle;
  run_thread_ranks(setting.stages, {}, log, [&](Communicator& stages) {
    const Idle found = run_stage(stages, setting, steps, enough);
    if (stages.rank() == 0) idle = found;
  });
  return idle;
}

}  // namespace dtrain::bench
