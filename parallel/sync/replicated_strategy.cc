#include "parallel/sync/replicated_strategy.h"

#include "parallel/share.h"
#include "parallel/sync/hooks/gradient_exchange.h"
#include "parallel/sync/sharded/shard_state.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/base/error.h"
#include "runtime/nn/trainable.h"

namespace dtrain {

void ReplicatedStrategy::prepare(const TrainingParts& parts, const Deadline& /*deadline*/) {
  network_ = parts.build(context_.device);
  optimizer_ = make_optimizer(parts);
  scaler_ = parts.scaler;
  limits_ = parts.limits;
  before_update_ = parts.before_update;
  guard_ = parts.update_guard();
  if (guard_ != nullptr) guard_->attach(*optimizer_);
}

// An optimizer of all parameters may have them in an order of its own, and the norm of gradients is added up
// in that.
std::unique_ptr<Optimizer> ReplicatedStrategy::make_optimizer(const TrainingParts& parts) {
  if (trainable_parameters(*network_).empty())
    throw UsageError("training: expected a network with a parameter that requires a gradient, got none");
  auto whole = parts.make_optimizer(network_->named_parameters());
  if (!deals()) return whole;
  return parts.make_optimizer(dealt_.emplace(whole->parameters(), context_.communicator).own());
}

// Weights wait for begin(), which hands rank 0's to everybody in any case. State that is dealt out every rank
// reads for itself.
void ReplicatedStrategy::load(const SavedState& state, const Deadline& deadline) {
  if (deals()) {
    check_values_together(*state.model, context_.communicator, deadline);
    check_values_together(*state.optimizer, context_.communicator, deadline);
    network_->load_state_dict(load_tensors(*state.model, context_.device));
    return optimizer_->load_state(
        load_tensors(*state.optimizer, context_.device, [&](const std::string& saved) {
          return belongs_to(saved, dealt_->own()) ? std::optional(saved) : std::nullopt;
        }));
  }
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

std::vector<Tensor> ReplicatedStrategy::gradients() const {
  return dealt_ ? dealt_->gradients() : optimizer_->gradients();
}

void ReplicatedStrategy::update() {
  const PhaseScope phase = context_.timer.phase(Phase::optimizer);
  apply_update(*optimizer_, gradients(), guard_, limits_, before_update_);
  if (dealt_) dealt_->hand_over(patience());
}

Tensors ReplicatedStrategy::evaluate(const Tensors& inputs) {
  const NoGrad no_grad;
  return (*network_)(inputs);
}

StateParts ReplicatedStrategy::save() {
  if (context_.communicator.rank() == 0) return held();
  return deals() ? StateParts{{}, whole(optimizer_->named_state())} : StateParts{};
}

StateParts ReplicatedStrategy::replica() { return deals() ? StateParts{} : held(); }

StateParts ReplicatedStrategy::held() {
  StateParts parts{whole(network_->state_dict()), whole(optimizer_->named_state())};
  for (SavedPart& part : whole(saved_state(remembers()))) parts.optimizer.push_back(std::move(part));
  return parts;
}

Replicas ReplicatedStrategy::replicas() {
  NamedTensors tensors = network_->named_parameters();
  if (deals()) return {&context_.communicator, std::move(tensors)};
  for (auto& state : optimizer_->named_state()) tensors.push_back(std::move(state));
  return {&context_.communicator, std::move(tensors)};
}

}  // namespace dtrain
