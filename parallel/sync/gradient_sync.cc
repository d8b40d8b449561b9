#include "parallel/sync/gradient_sync.h"

#include "parallel/sync/average.h"
#include "parallel/sync/equal_start.h"
#include "parallel/sync/fixed_tree_gradients.h"
#include "parallel/sync/used_parameters.h"
#include "runtime/nn/trainable.h"

namespace dtrain {

void GradientSync::attach(const SharedNetwork& shared) {
  network_ = &shared.network;
  if (partitions_state()) partition_.emplace(shared.in_order(), dp_group());
}

NamedTensors GradientSync::updated() const {
  return partition_ ? partition_->own() : network_->named_parameters();
}

// An optimizer may have parameters in an order of its own, and the norm of gradients is added up in that.
NamedTensors GradientSync::shared(const Optimizer& optimizer) const {
  return partition_ ? partition_->all() : optimizer.parameters();
}

void GradientSync::begin(const Deadline& deadline) {
  const NamedTensors state = network_->state_dict();
  check_same_model(dp_group(), state, deadline);
  copy_from_first_rank(dp_group(), state, deadline);
}

void GradientSync::begin_step(std::size_t /*passes*/) { network_->zero_grad(); }

void GradientSync::take_update(bool /*exchange*/, const Deadline& deadline) {
  if (!partition_) return;
  const PhaseScope phase = context_.timer.phase(Phase::communication);
  partition_->broadcast_updates(deadline);
}

void GradientSync::sync_state(const NamedTensors& /*state*/, const Deadline& deadline) {
  copy_from_first_rank(dp_group(), network_->named_buffers(), deadline);
}

Replicas GradientSync::replicas(const NamedTensors& state) {
  NamedTensors tensors = network_->named_parameters();
  if (!partition_) tensors.insert(tensors.end(), state.begin(), state.end());
  return {&dp_group(), std::move(tensors)};
}

namespace {

/// Nothing here learns; gradients pass through.
class FrozenSync final : public GradientSync {
 public:
  explicit FrozenSync(const GradientSync& planned)
      : GradientSync(planned), divisor_(planned.loss_divisor()), keeps_(planned.keeps_gradients()) {
    state_ = OptimizerState::everywhere;
  }

  bool keeps_gradients() const noexcept override { return keeps_; }
  void after_forward(std::size_t pass, std::size_t count) override {
    if (share_.size != dp_group().size()) memory_.after_forward(network(), pass, count);
  }
  double loss_divisor() const noexcept override { return divisor_; }
  void finish(const Deadline& /*deadline*/) override { memory_.put_back(); }
  void drop_step() override { memory_.put_back(); }
  void sync_state(const NamedTensors& state, const Deadline& deadline) override {
    GradientSync::sync_state(state, deadline);
    if (hook_) hook_->sync_state(dp_group(), deadline);
  }
  void exchange_alone(const Deadline& /*deadline*/) override {}

 private:
  double divisor_;
  bool keeps_;
  FirstPassBuffers memory_;
};

class LateAllReduce final : public GradientSync {
 public:
  LateAllReduce(const StrategyContext& context, OptimizerState state) : GradientSync(context, state) {}

  void finish(const Deadline& deadline) override {
    if (dp_group().size() == 1) return;
    const NamedTensors parameters = trainable_parameters(network());
    complete_gradients(parameters, dp_group(), deadline);
    NamedTensors gradients;
    for (const auto& [name, parameter] : parameters) {
      if (parameter.grad().defined()) gradients.emplace_back("gradient of " + name, parameter.grad());
    }
    average(gradients, dp_group(), deadline);
  }
  void exchange_alone(const Deadline& deadline) override { finish(deadline); }
};

}  // namespace

std::unique_ptr<GradientSync> share_frozen(const GradientSync& planned) {
  return std::make_unique<FrozenSync>(planned);
}

std::unique_ptr<GradientSync> all_reduce_afterwards(const StrategyContext& context, OptimizerState state) {
  return std::make_unique<LateAllReduce>(context, state);
}

}  // namespace dtrain
