#include "parallel/sync/data_parallel_strategy.h"

#include "parallel/share.h"

namespace dtrain {

DataParallelStrategy::DataParallelStrategy(const StrategyContext& context, ReducerOptions options,
                                           bool waits_inside, OptimizerState state)
    : ReplicatedStrategy(context, state), options_(std::move(options)), waits_inside_(waits_inside) {
  if (!options_.device) options_.device = context.device;
}

void DataParallelStrategy::prepare(const TrainingParts& parts, const Deadline& deadline) {
  ReplicatedStrategy::prepare(parts, deadline);
  GradientExchange* const exchange = remembers();
  if (exchange == nullptr || scaler_ == nullptr) return;
  exchange->await_decisions();
  before_update_ = [this, exchange, agree = parts.before_update] {
    if (agree) agree();
    exchange->decided(scaler_->found());
  };
}

void DataParallelStrategy::load(const SavedState& state, const Deadline& deadline) {
  ReplicatedStrategy::load(state, deadline);
  if (remembers() == nullptr) return;
  NamedTensors remembered;
  if (deals() || context_.communicator.rank() == 0) {
    remembered = load_exchange_state(*state.optimizer, context_.device,
                                     [](const std::string& name) { return std::optional(name); });
  }
  if (!deals()) remembered = broadcast_tensors(context_.communicator, remembered, context_.device, deadline);
  options_.exchange->load(remembered);
}

void DataParallelStrategy::begin(const Deadline& deadline) {
  parallel_ = std::make_unique<DataParallel>(context_.communicator, *network_, deadline, options_);
}

void DataParallelStrategy::step(Passes& passes, Exchange exchange) {
  const bool all = exchange == Exchange::all;
  network_->zero_grad();
  for (std::size_t i = 0; i < passes.count(); ++i) compute(passes, i, all && i + 1 == passes.count());
  if (all) {
    const PhaseScope phase = context_.timer.phase(Phase::communication);
    parallel_->finish(patience());
    passes.gradients_done();
  }
  update();
}

// Gradients of the last pass go to the peers while it runs; those of the passes before only add up.
void DataParallelStrategy::compute(Passes& passes, std::size_t i, bool exchange) {
  if (exchange) return run_pass(passes, i);
  const auto no_sync = parallel_->no_sync();
  run_pass(passes, i);
}

std::optional<int> DataParallelStrategy::variant(std::int64_t /*step*/) const {
  // Who hands parameters over waits for the others, and who left some out for what the others used.
  const bool asks = parallel_ && parallel_->asked_peers();
  return waits_inside_ || deals() || asks ? std::nullopt : std::optional(0);
}

bool DataParallelStrategy::settling_counts() const noexcept {
  return options_.exchange && options_.exchange->remembers();
}

GradientExchange* DataParallelStrategy::remembers() noexcept {
  return settling_counts() ? options_.exchange.get() : nullptr;
}

void DataParallelStrategy::settle(const Deadline& deadline) {
  parallel_->sync_buffers(deadline);
  if (options_.exchange) options_.exchange->settle(context_.communicator, deadline);
}

void DataParallelStrategy::exchange_alone(const Deadline& deadline) {
  if (!idle_) idle_ = parallel_->make_idle_reducer();
  for (std::size_t index = idle_->slot_count(); index-- > 0;) idle_->mark_ready(index);
  idle_->finish(deadline);
}

}  // namespace dtrain
