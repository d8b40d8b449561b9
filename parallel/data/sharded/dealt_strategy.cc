#include "parallel/data/sharded/dealt_strategy.h"

#include "parallel/data/sharded/shard_state.h"

namespace dtrain {

void DealtStrategy::prepare(const TrainingParts& parts, const Deadline& deadline) {
  TrainingParts own = parts;
  own.make_optimizer = [&](const NamedTensors& parameters) {
    return parts.make_optimizer(dealt_.emplace(parameters, context_.communicator).own());
  };
  DataParallelStrategy::prepare(own, deadline);
}

void DealtStrategy::load(const SavedState& state, const Deadline& deadline) {
  check_values_together(*state.model, context_.communicator, deadline);
  check_values_together(*state.optimizer, context_.communicator, deadline);
  network_->load_state_dict(load_tensors(*state.model, context_.device));
  optimizer_->load_state(load_tensors(*state.optimizer, context_.device, [&](const std::string& saved) {
    return belongs_to(saved, dealt_->own()) ? std::optional(saved) : std::nullopt;
  }));
}

StateParts DealtStrategy::save() {
  StateParts parts{{}, whole(optimizer_->named_state())};
  if (context_.communicator.rank() == 0) parts.model = whole(network_->state_dict());
  return parts;
}

void DealtStrategy::update() {
  const PhaseScope phase = context_.timer.phase(Phase::optimizer);
  const std::vector<Tensor> gradients = dealt_->gradients();
  if (scaler_ != nullptr) scaler_->unscale(gradients);
  if (before_update_) before_update_();
  limit_gradients(gradients, limits_);
  optimizer_->step();
  if (scaler_ != nullptr) scaler_->update();
  dealt_->hand_over(patience());
}

}  // namespace dtrain
