#include "parallel/data/data_parallel_strategy.h"

#include "parallel/share.h"
#include "runtime/autograd/grad_mode.h"

namespace dtrain {

DataParallelStrategy::DataParallelStrategy(const StrategyContext& context, ReducerOptions options,
                                           bool waits_inside)
    : context_(context), options_(std::move(options)), waits_inside_(waits_inside) {}

void DataParallelStrategy::prepare(const TrainingParts& parts, const Deadline& /*deadline*/) {
  network_ = parts.build(context_.device);
  optimizer_ = parts.make_optimizer(network_->named_parameters());
  scaler_ = parts.scaler;
  limits_ = parts.limits;
  if (scaler_ != nullptr) scaler_->attach(*optimizer_);
}

// Weights wait for begin(), which hands rank 0's to everybody in any case.
void DataParallelStrategy::load(const SavedState& state, const Deadline& deadline) {
  NamedTensors optimizer;
  if (share().rank == 0) {
    network_->load_state_dict(load_tensors(*state.model, context_.device));
    optimizer = load_tensors(*state.optimizer, context_.device);
  }
  optimizer_->load_state(broadcast_tensors(context_.communicator, optimizer, context_.device, deadline));
}

void DataParallelStrategy::begin(const Deadline& deadline) {
  parallel_ = std::make_unique<DataParallel>(context_.communicator, *network_, deadline, options_);
}

void DataParallelStrategy::step(Passes& passes, Exchange exchange) {
  const bool all = exchange == Exchange::all;
  optimizer_->zero_grad();
  for (std::size_t i = 0; i < passes.count(); ++i) run_pass(passes, i, all && i + 1 == passes.count());
  if (all) {
    const PhaseScope phase = context_.timer.phase(Phase::communication);
    parallel_->finish(patience());
    passes.gradients_done();
  }
  const PhaseScope phase = context_.timer.phase(Phase::optimizer);
  apply_update(*optimizer_, scaler_, limits_);
}

// Gradients of the last pass go to the peers while it runs; those of the passes before only add up.
void DataParallelStrategy::run_pass(Passes& passes, std::size_t i, bool exchange) {
  const Tensors inputs = passes.inputs(i);
  Tensor loss;
  {
    const PhaseScope phase = context_.timer.phase(Phase::forward);
    loss = passes.loss(i, (*network_)(inputs));
  }
  const PhaseScope phase = context_.timer.phase(Phase::backward);
  if (i + 1 == passes.count()) passes.losses_done();
  const auto backward = [&] { start_backward(loss, passes.weight(i), scaler_); };
  if (exchange) return backward();
  const auto no_sync = parallel_->no_sync();
  backward();
}

std::optional<int> DataParallelStrategy::variant(std::int64_t /*step*/) const {
  return waits_inside_ ? std::nullopt : std::optional(0);
}

void DataParallelStrategy::settle(const Deadline& deadline) { parallel_->sync_buffers(deadline); }

Tensors DataParallelStrategy::evaluate(const Tensors& inputs) {
  const NoGrad no_grad;
  return (*network_)(inputs);
}

StateParts DataParallelStrategy::save() {
  if (share().rank != 0) return {};
  return {whole(network_->state_dict()), whole(optimizer_->named_state())};
}

Replicas DataParallelStrategy::replicas() {
  NamedTensors tensors = network_->named_parameters();
  for (auto& state : optimizer_->named_state()) tensors.push_back(std::move(state));
  return {&context_.communicator, std::move(tensors)};
}

void DataParallelStrategy::exchange_alone(const Deadline& deadline) {
  if (!idle_) idle_ = parallel_->make_idle_reducer();
  for (std::size_t index = idle_->slot_count(); index-- > 0;) idle_->mark_ready(index);
  idle_->finish(deadline);
}

}  // namespace dtrain
