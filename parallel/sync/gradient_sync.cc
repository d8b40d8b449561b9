#include "parallel/sync/gradient_sync.h"

#include "parallel/span_of.h"
#include "parallel/sync/equal_start.h"
#include "parallel/sync/fixed_tree_gradients.h"
#include "parallel/sync/used_parameters.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/nn/trainable.h"

namespace dtrain {

void GradientSync::attach(const SharedNetwork& shared) {
  network_ = &shared.network;
  if (deals()) dealt_.emplace(shared.in_order(), copies());
}

NamedTensors GradientSync::updated() const { return dealt_ ? dealt_->own() : network_->named_parameters(); }

// An optimizer may have parameters in an order of its own, and the norm of gradients is added up in that.
NamedTensors GradientSync::shared(const Optimizer& optimizer) const {
  return dealt_ ? dealt_->all() : optimizer.parameters();
}

void GradientSync::begin(const Deadline& deadline) {
  const NamedTensors state = network_->state_dict();
  check_same_model(copies(), state, deadline);
  copy_from_first_rank(copies(), state, deadline);
}

void GradientSync::begin_step(std::size_t /*passes*/) { network_->zero_grad(); }

void GradientSync::take_update(bool /*exchange*/, const Deadline& deadline) {
  if (!dealt_) return;
  const PhaseScope phase = context_.timer.phase(Phase::communication);
  dealt_->hand_over(deadline);
}

void GradientSync::settle(Optimizer& /*optimizer*/, const Deadline& deadline) {
  copy_from_first_rank(copies(), network_->named_buffers(), deadline);
}

Replicas GradientSync::replicas(const NamedTensors& state) {
  NamedTensors tensors = network_->named_parameters();
  if (!dealt_) tensors.insert(tensors.end(), state.begin(), state.end());
  return {&copies(), std::move(tensors)};
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
    if (share_.size != copies().size()) memory_.after_forward(network(), pass, count);
  }
  double loss_divisor() const noexcept override { return divisor_; }
  void finish(const Deadline& /*deadline*/) override { memory_.put_back(); }
  void drop_step() override { memory_.put_back(); }
  void settle(Optimizer& optimizer, const Deadline& deadline) override {
    GradientSync::settle(optimizer, deadline);
    if (hook_) hook_->settle(copies(), deadline);
  }
  void exchange_alone(const Deadline& /*deadline*/) override {}

 private:
  double divisor_;
  bool keeps_;
  FirstPartMemory memory_;
};

class LateAllReduce final : public GradientSync {
 public:
  LateAllReduce(const StrategyContext& context, OptimizerState state) : GradientSync(context, state) {}

  void finish(const Deadline& deadline) override {
    const int ranks = copies().size();
    if (ranks == 1) return;
    const NoGrad no_grad;
    const NamedTensors parameters = trainable_parameters(network());
    complete_gradients(parameters, copies(), deadline);
    std::vector<std::unique_ptr<Work>> works;
    for (const auto& [name, parameter] : parameters) {
      if (!parameter.grad().defined()) continue;
      Tensor share = parameter.grad().detach();
      share.scale_in_place(1.0 / ranks);
      works.push_back(copies().all_reduce(span_of(share), ReduceOp::sum, "gradient of " + name));
    }
    for (auto& work : works) work->wait(deadline);
    for (const auto& [name, parameter] : parameters) {
      if (parameter.grad().defined()) parameter.grad().mark_modified();
    }
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
