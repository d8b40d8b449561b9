#include "parallel/data/replicated_strategy.h"

#include "parallel/share.h"
#include "runtime/autograd/grad_mode.h"

namespace dtrain {

void ReplicatedStrategy::prepare(const TrainingParts& parts, const Deadline& /*deadline*/) {
  network_ = parts.build(context_.device);
  optimizer_ = parts.make_optimizer(network_->named_parameters());
  scaler_ = parts.scaler;
  limits_ = parts.limits;
  before_update_ = parts.before_update;
  if (scaler_ != nullptr) scaler_->attach(*optimizer_);
}

// Weights wait for begin(), which hands rank 0's to everybody in any case.
void ReplicatedStrategy::load(const SavedState& state, const Deadline& deadline) {
  NamedTensors optimizer;
  if (context_.communicator.rank() == 0) {
    network_->load_state_dict(load_tensors(*state.model, context_.device));
    optimizer = load_tensors(*state.optimizer, context_.device);
  }
  optimizer_->load_state(broadcast_tensors(context_.communicator, optimizer, context_.device, deadline));
}

void ReplicatedStrategy::run_pass(Passes& passes, std::size_t i) {
  const Tensors inputs = passes.inputs(i);
  Tensor loss;
  {
    const PhaseScope phase = context_.timer.phase(Phase::forward);
    loss = passes.loss(i, (*network_)(inputs));
  }
  const PhaseScope phase = context_.timer.phase(Phase::backward);
  if (i + 1 == passes.count()) passes.losses_done();
  start_backward(loss, passes.weight(i), scaler_);
}

void ReplicatedStrategy::update() {
  const PhaseScope phase = context_.timer.phase(Phase::optimizer);
  apply_update(*optimizer_, optimizer_->gradients(), scaler_, limits_, before_update_);
}

Tensors ReplicatedStrategy::evaluate(const Tensors& inputs) {
  const NoGrad no_grad;
  return (*network_)(inputs);
}

StateParts ReplicatedStrategy::save() { return context_.communicator.rank() == 0 ? replica() : StateParts{}; }

StateParts ReplicatedStrategy::replica() {
  return {whole(network_->state_dict()), whole(optimizer_->named_state())};
}

Replicas ReplicatedStrategy::replicas() {
  NamedTensors tensors = network_->named_parameters();
  for (auto& state : optimizer_->named_state()) tensors.push_back(std::move(state));
  return {&context_.communicator, std::move(tensors)};
}

}  // namespace dtrain
