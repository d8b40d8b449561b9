#include "training/engine/engine.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "collectives/factory.h"
#include "parallel/layout/repeated_passes.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/autograd/ops.h"
#include "runtime/base/draw_guard.h"
#include "runtime/base/error.h"
#include "training/engine/evaluate.h"
#include "training/log/straggler_detector.h"

namespace dtrain {
namespace {

/// The loss of a pass without units, of which there is no mean: 0, with gradients of 0 for whatever `outputs`
/// came from. Peers wait for these gradients as for any.
Tensor no_loss(const Tensors& outputs) {
  Tensor total;
  for (const Tensor& output : outputs) {
    if (!is_floating(output.dtype())) continue;
    const Tensor nothing = sum(mul(output, 0.0));
    total = total.defined() ? add(total, nothing) : nothing;
  }
  return total;
}

}  // namespace

/// A step's batches as the strategy asks for them: fetched as they are needed, or loaded already where a
/// recorded step reads them.
class Engine::StepPasses final : public MicroBatches {
 public:
  /// `exchange`: what the step shares is what counts; without, nothing of it leaves this rank.
  StepPasses(Engine& engine, const StepPlan& plan, const BatchSupply& supply, Exchange exchange)
      : engine_(engine),
        plan_(plan),
        supply_(&supply),
        exchange_(exchange),
        batches_(plan.passes),
        units_(plan.passes),
        indices_(plan.passes),
        even_share_(static_cast<double>(plan.report.samples) /
                    static_cast<double>(engine.strategy_.share().size)) {
    if (engine_.units_vary_) weigh_units();
  }
  StepPasses(Engine& engine, const StepPlan& plan, const std::vector<BatchTensors>& loaded)
      : engine_(engine),
        plan_(plan),
        batches_(loaded),
        units_(loaded.size()),
        even_share_(static_cast<double>(plan.report.samples) /
                    static_cast<double>(engine.strategy_.share().size)) {
    for (std::size_t i = 0; i < loaded.size(); ++i) units_[i] = static_cast<double>(loaded[i].size());
  }

  void begin_phase(std::size_t phase) override { phase_ = phase; }
  std::size_t count() const noexcept override { return batches_.size(); }

  Tensors inputs(std::size_t i) override {
    if (batches_[i].size() == 0) fetch(i);
    if (supply_ != nullptr) engine_.key_masks(plan_.report.record.step, indices_[i]);
    return engine_.task_.inputs(batches_[i]);
  }

  Tensor loss(std::size_t i, const Tensors& outputs) override {
    if (units_[i] == 0) return no_loss(in_full_precision(outputs));
    const Tensors full = in_full_precision(outputs);
    Tensor loss = engine_.loss_of(full, batches_[i], phase_);
    if (!loss.defined() || loss.numel() != 1 || !is_floating(loss.dtype())) {
      throw UsageError(
          fmt::format("task {}: expected a loss of one floating element, the mean over the batch, got {}",
                      engine_.task_.name(), loss.defined() ? loss.describe() : "an undefined tensor"));
    }
    if (repeated_) repeated_->note_loss(i, loss);
    if (trial_) return loss;
    if (engine_.strategy_.holds_outputs()) engine_.reports_->add(loss, weight(i), phase_);  // once a share
    if (engine_.train_metrics_ && engine_.strategy_.holds_outputs() && exchange_ == Exchange::all)
      engine_.train_metrics_->add(full, batches_[i], units_[i]);
    if (supply_ != nullptr && is_last_phase()) batches_[i] = {};  // backward keeps what it needs
    return loss;
  }

  // A unit counts the same wherever it is: shares are averaged, so one with more than its even part weighs
  // more. And passes of unequal size count by their size, so that accumulation never changes what is
  // minimised.
  double weight(std::size_t i) const override { return units_[i] / even_share_; }

  void losses_done() override {
    if (!trial_ && !engine_.runs_ahead() && exchange_ == Exchange::all && is_last_phase())
      engine_.reports_->send(plan_.report.stop, plan_.report.save, *engine_.guard_);
  }

  // On the CPU the loss is known before the update, which then need not happen.
  void gradients_done() override {
    const bool known = !engine_.runs_ahead() && exchange_ == Exchange::all && is_last_phase();
    const auto [loss, corrupted] = known ? engine_.reports_->sums(engine_.deadline()) : std::pair(0.0, false);
    if (plan_.check_compute) check_both();
    if (known) engine_.check_loss(loss, corrupted, plan_.report.record);
  }

  bool begin_trial(Module& network) override {
    trial_ = plan_.check_compute && supply_ != nullptr;
    if (trial_) repeated_.emplace(network);
    return trial_;
  }
  void end_trial() override {
    trial_ = false;
    repeated_->begin_second();
  }

  /// Host memory that the device may still be copying from.
  std::vector<std::shared_ptr<void>> take_kept() { return std::move(kept_); }

 private:
  bool is_last_phase() const { return phase_ + 1 >= engine_.phases_.size(); }

  void fetch(std::size_t i) {
    const DrawGuard allowed(false);  // a data set's own business
    const Batch batch = (*supply_)();
    {
      const SpanScope span(engine_.options_.timer.spans, "copy to device", "phase");
      batches_[i] = engine_.feed_.take(batch);
    }
    if (engine_.runs_ahead()) kept_.push_back(batch.memory);
    if (!engine_.dropouts_.empty()) indices_[i].assign(batch.indices.begin(), batch.indices.end());
    units_[i] = engine_.units_vary_ ? engine_.task_.units(batch) : static_cast<double>(batch.size());
    engine_.options_.timer.clock->lap(Phase::data);
  }

  // Of ranks that do not step together each looks at itself.
  void check_both() {
    if (!repeated_)
      throw UsageError(fmt::format("--check-compute: expected a strategy that begins its trials, got {}",
                                   engine_.strategy_.traits().name));
    try {
      check_repeated(repeated_->difference(), place_of(*engine_.device_),
                     engine_.alone_ ? *engine_.alone_ : engine_.communicator_, engine_.deadline());
    } catch (const ComputeError& error) {
      throw ComputeError(fmt::format("step {}: {}", plan_.report.record.step, error.what()));
    }
    repeated_.reset();
  }

  void weigh_units() {
    double total = 0;
    for (std::size_t i = 0; i < batches_.size(); ++i) {
      fetch(i);
      total += units_[i];
    }
    // Ranks that hold parts of one model count the same units, each for its shares.
    double sums[] = {total, static_cast<double>(engine_.strategy_.share().parts)};
    Communicator& group = engine_.alone_ ? *engine_.alone_ : engine_.communicator_;
    if (exchange_ == Exchange::all) {
      group.all_reduce({.data = sums, .count = 2, .dtype = DType::f64}, ReduceOp::sum, "units of a step")
          ->wait(engine_.deadline());
    }
    if (!(sums[0] > 0)) {
      throw UsageError(fmt::format(
          "task {}: expected a step with at least one unit, got {} over all ranks in step {}; use a "
          "larger batch, or leave out samples without any",
          engine_.task_.name(), sums[0], plan_.report.record.step));
    }
    even_share_ = sums[0] / sums[1];
  }

  Engine& engine_;
  const StepPlan& plan_;
  const BatchSupply* supply_ = nullptr;  ///< null: everything is loaded, and stays
  Exchange exchange_ = Exchange::all;
  std::size_t phase_ = 0;
  std::vector<BatchTensors> batches_;
  std::vector<double> units_;
  std::vector<std::vector<std::int64_t>> indices_;  ///< of each pass' samples, where dropout asks for them
  double even_share_;
  std::vector<std::shared_ptr<void>> kept_;
  std::optional<RepeatedPasses> repeated_;  ///< where the passes are computed twice
  bool trial_ = false;                      ///< for the first time
};

Engine::Engine(const Task& task, Strategy& strategy, Communicator& communicator,
               const std::shared_ptr<Device>& device, const EngineOptions& options, Log& log)
    : task_(task),
      strategy_(strategy),
      communicator_(communicator),
      device_(device),
      options_(options),
      alone_(strategy.in_step() ? nullptr : make_communicator(Backend::self, {}, log)),
      guard_(options.precision == Precision::fp16 ? std::make_unique<GradScaler>(device)
                                                  : std::make_unique<UpdateGuard>(device)),
      phases_(task.phases()),
      step_loss_(task.step_loss()),
      group_loss_(task.group_loss()),
      after_update_(task.after_update()),
      scaler_(dynamic_cast<GradScaler*>(guard_.get())),
      feed_(device) {
  if (group_loss_ && (step_loss_ || !phases_.empty())) {
    throw UsageError(
        fmt::format("task {}: expected a group_loss() alone, got one beside {}; it is given the step, too",
                    task.name(), step_loss_ ? "a step_loss()" : "phases()"));
  }
  if (options_.graphs == GraphUse::on && !device->has_graphs()) {
    throw UsageError("--cuda-graph on: expected a device with graphs, got " + device->name() +
                     "; use --device cuda, or --cuda-graph auto");
  }
}

Engine::~Engine() = default;

void Engine::prepare(ModelFactory factory, std::span<const Field> fields, const Deadline& deadline) {
  units_vary_ = task_.units_vary(fields);
  factory.scaler = scaler_;
  factory.guard = guard_.get();
  factory.precision = options_.precision;
  factory.phases = model_phases();
  strategy_.prepare(factory, deadline);
  std::vector<std::string> phases;
  for (const StepPhase& phase : phases_) phases.push_back(phase.name);
  reports_ = std::make_unique<StepReports>(alone_ ? *alone_ : communicator_,
                                           alone_ ? 1 : strategy_.share().size, device_, std::move(phases));
  dropouts_ = dropout_keys(strategy_.module());
  const bool counts_steps = !phases_.empty() || step_loss_ || group_loss_ || after_update_;
  if (options_.train_metrics) train_metrics_ = std::make_unique<TrainMetrics>(task_);
  const bool recordable = strategy_.graph_key(1).has_value() && !units_vary_ && dropouts_.empty() &&
                          !counts_steps && !train_metrics_;
  if (options_.graphs == GraphUse::on && !recordable) {
    throw UsageError(fmt::format(
        "--cuda-graph on: expected steps that wait for nothing, got {}; leave one of the two out, or use "
        "--cuda-graph auto",
        units_vary_ ? "samples that differ in units, whose number is exchanged before each step"
        : counts_steps
            ? "a task that computes otherwise in each step (phases, step_loss, group_loss, after_update)"
        : !dropouts_.empty() ? "dropout or noise, whose numbers are keyed by samples that only the host knows"
                             : "a strategy that exchanges inside a step (--sync-batch-norm)"));
  }
  if (!recordable || !device_->has_graphs()) options_.graphs = GraphUse::off;
}

// Null where this step runs as it is.
StepGraph* Engine::graph_for(const StepPlan& plan, int& key) {
  if (options_.graphs == GraphUse::off || plan.check_compute) return nullptr;
  const std::optional<int> number = strategy_.graph_key(plan.report.record.step);
  if (!number) return nullptr;
  key = *number;
  if (plan.shape && *plan.shape != recorded_shape_) {
    device_->compute_stream().synchronize();  // the last launch may still run
    forget_recordings();
    recorded_shape_ = *plan.shape;
  }
  StepGraph& graph = graphs_.try_emplace(key, device_).first->second;
  return graph.takes(plan.shape.has_value()) ? &graph : nullptr;
}

void Engine::step(const StepPlan& plan, const BatchSupply& supply) {
  const Autocast autocast(options_.precision, low_weights_);
  std::vector<std::shared_ptr<void>> kept;
  int key = 0;
  if (StepGraph* graph = graph_for(plan, key)) {
    kept = replay(*graph, plan, supply);
  } else {
    StepPasses passes(*this, plan, supply, Exchange::all);
    run(plan, passes, Exchange::all);
    kept = passes.take_kept();
  }
  if (runs_ahead()) reports_->send(plan.report.stop, plan.report.save, *guard_);
  reports_->post(plan.report, *guard_, scaler_, std::move(kept));
  options_.timer.clock->lap(Phase::optimizer);
}

void Engine::step_alone(const StepPlan& plan, const BatchSupply& supply) {
  const Autocast autocast(options_.precision, low_weights_);
  StepPasses passes(*this, plan, supply, Exchange::no_sync);
  run(plan, passes, Exchange::no_sync);
  if (runs_ahead()) device_->compute_stream().synchronize();  // what was kept is still being read
}

void Engine::run(const StepPlan& plan, MicroBatches& passes, Exchange exchange) {
  const DrawGuard guard;
  at_ = {plan.report.record.step, plan.report.record.epoch};
  reports_->begin();
  strategy_.step(passes, exchange);
  if (!after_update_ || exchange == Exchange::no_sync) return;
  const NoGrad no_grad;
  after_update_(strategy_.module(), at_);
}

Tensor Engine::loss_of(const Tensors& outputs, const BatchTensors& batch, std::size_t phase) const {
  if (!phases_.empty()) return phases_[phase].loss(outputs, batch, at_);
  if (group_loss_) return group_loss_(outputs, batch, at_, {communicator_, options_.patience});
  return step_loss_ ? step_loss_(outputs, batch, at_) : task_.loss(outputs, batch);
}

std::vector<ModelPhase> Engine::model_phases() const {
  std::vector<ModelPhase> phases;
  for (const StepPhase& phase : phases_) {
    if (phase.name.empty() || !phase.loss)
      throw UsageError(fmt::format("task {}: expected phases with a name and a loss, got number {} without",
                                   task_.name(), phases.size() + 1));
    phases.push_back(
        {.name = phase.name, .parameters = phase.parameters, .make_optimizer = phase.make_optimizer});
    if (phase.forward)
      phases.back().forward = [this, forward = phase.forward](Module& network, const Tensors& inputs) {
        return forward(network, inputs, at_);
      };
  }
  return phases;
}

// All of a step's device work is one launch: passes, all-reduces, update. What the host counts along with the
// device, it counts here.
std::vector<std::shared_ptr<void>> Engine::replay(StepGraph& graph, const StepPlan& plan,
                                                  const BatchSupply& supply) {
  std::vector<Batch> batches;
  std::vector<std::shared_ptr<void>> kept;
  for (std::size_t i = 0; i < plan.passes; ++i) {
    batches.push_back(supply());
    kept.push_back(batches.back().memory);
  }
  graph.load(feed_, batches);
  options_.timer.clock->lap(Phase::data);
  Optimizer& optimizer = *strategy_.optimizer();
  if (graph.is_recorded()) {
    optimizer.count_replay();
  } else {
    optimizer.begin_recording();
    low_weights_.clear();
    graph.record([&] {
      StepPasses passes(*this, plan, graph.inputs());
      run(plan, passes, Exchange::all);
    });
    optimizer.end_recording();
  }
  optimizer.prepare_replay();
  graph.launch();
  for (const auto& [name, tensor] : strategy_.module().state_dict()) tensor.mark_modified();
  return kept;
}

// A mask is the same whichever worker holds the sample, and after a restart.
void Engine::key_masks(std::int64_t step, std::span<const std::int64_t> indices) {
  for (const auto& key : dropouts_) {
    key->set_step(step);
    key->set_rows(Tensor::from_data(indices, {static_cast<std::int64_t>(indices.size())}, key->device()));
  }
}

// The loss is that of the unscaled outputs: no loss scale makes it finite.
void Engine::check_loss(double loss, bool corrupted, const StepRecord& step) const {
  if (corrupted) {
    // It travels with the loss: on the CPU it is on its way before the step's own update.
    const std::int64_t at = runs_ahead() ? step.step : step.step - 1;
    throw LossError(fmt::format("step {}: gradients and loss are finite, but after the update weights, or "
                                "optimizer state, are not; nothing of it was saved",
                                at),
                    NotFinite::state, at, std::numeric_limits<double>::quiet_NaN());
  }
  if (std::isfinite(loss)) return;
  throw LossError(fmt::format("step {} (epoch {}): the loss is {}", step.step, step.epoch + 1, loss),
                  NotFinite::loss, step.step, loss);
}

// With loss scaling a step that overflows is only skipped, as long as a smaller scale can help.
void Engine::check_gradients(const StepReport& report) {
  const bool at_the_least = scaler_ == nullptr || report.record.loss_scale <= scaler_->least_scale();
  if (!report.overflowed || !at_the_least) {
    overflows_at_the_least_ = 0;
    return;
  }
  // The report has the scale that follows: the first such step had twice the least.
  if (scaler_ != nullptr && ++overflows_at_the_least_ < 2) return;
  const StepRecord& step = report.record;
  const auto message = fmt::format(
      "step {} (epoch {}): the loss is {:.6g}, but gradients are not finite{}", step.step, step.epoch + 1,
      report.record.loss,
      scaler_ == nullptr ? "" : fmt::format(" at the smallest loss scale, {}", report.record.loss_scale));
  throw LossError(message, scaler_ == nullptr ? NotFinite::gradients : NotFinite::scaled_gradients, step.step,
                  report.record.loss);
}

StepReport Engine::take_report() {
  const StepReport report = reports_->take(deadline());
  options_.timer.clock->lap(Phase::communication);
  check_loss(report.record.loss, report.corrupted, report.record);
  check_gradients(report);
  return report;
}

std::optional<Evaluation> Engine::take_train_metrics() {
  return train_metrics_ ? train_metrics_->take(communicator_, deadline()) : std::nullopt;
}

void Engine::begin_evaluation() {
  if (WeightAverage* average = strategy_.average()) average->swap();
  strategy_.module().eval();
}

void Engine::end_evaluation() {
  strategy_.module().train();
  if (WeightAverage* average = strategy_.average()) average->swap();
}

Evaluation Engine::evaluate(const std::shared_ptr<const Source>& source, std::int64_t batch_size) {
  const Autocast autocast(options_.precision, low_weights_);
  strategy_.sync_state(deadline());
  begin_evaluation();
  const Evaluation found = dtrain::evaluate(
      task_, [this](const Tensors& inputs) { return strategy_.evaluate(inputs); }, source,
      {.batch_size = batch_size,
       .share = alone_ ? DataShare{} : strategy_.share(),
       .counts = strategy_.holds_outputs(),
       .together = strategy_.computes_together(),
       .patience = options_.patience},
      alone_ ? *alone_ : communicator_, device_);
  end_evaluation();
  return found;
}

std::string Engine::show(const std::shared_ptr<const Source>& samples, std::uint64_t number) {
  const Autocast autocast(options_.precision, low_weights_);
  const NoGrad no_grad;
  if (!strategy_.sync_state_alters_steps()) strategy_.sync_state(deadline());
  Communicator& group = alone_ ? *alone_ : communicator_;
  const auto over_ranks = [&](double value, ReduceOp op) {
    group.all_reduce({.data = &value, .count = 1, .dtype = DType::f64}, op, "what is shown")
        ->wait(deadline());
    return value;
  };
  const bool has_outputs = alone_ != nullptr || strategy_.holds_outputs();
  const double speaker = -over_ranks(has_outputs ? -group.rank() : -group.size(), ReduceOp::max);
  begin_evaluation();
  const std::string text = task_.show(
      {.network = [this](const Tensors& inputs) { return in_full_precision(strategy_.evaluate(inputs)); },
       .agreed =
           [&](std::int64_t value) {
             const double own = group.rank() == speaker ? static_cast<double>(value) : 0;
             return static_cast<std::int64_t>(over_ranks(own, ReduceOp::sum));
           },
       .samples = samples,
       .device = device_,
       .number = number,
       .patience = options_.patience});
  end_evaluation();
  return text;
}

}  // namespace dtrain
