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
  if (remembers() == nullptr) return;
  remembers()->load(load_exchange_state(*state.optimizer, context_.device,
                                        [](const std::string& name) { return std::optional(name); }));
}

StateParts DealtStrategy::save() {
  StateParts parts{{}, whole(optimizer_->named_state())};
  if (context_.communicator.rank() > 0) return parts;
  parts.model = whole(network_->state_dict());
  for (SavedPart& part : whole(saved_state(remembers()))) parts.optimizer.push_back(std::move(part));
  return parts;
}

void DealtStrategy::update() {
  const PhaseScope phase = context_.timer.phase(Phase::optimizer);
  apply_update(*optimizer_, dealt_->gradients(), scaler_, limits_, before_update_);
  dealt_->hand_over(patience());
}

}  // namespace dtrain
