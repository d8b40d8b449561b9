#include "parallel/sync/sharded/sharded_strategy.h"

#include <fmt/format.h>

#include <algorithm>

#include "parallel/span_of.h"
#include "parallel/sync/equal_start.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/autograd/ops.h"
#include "runtime/base/error.h"
#include "runtime/optim/clip.h"

namespace dtrain {
namespace {

ShardOptions with_patience(ShardOptions options, Duration patience) {
  options.patience = patience;
  return options;
}

}  // namespace

ShardedStrategy::ShardedStrategy(const StrategyContext& context, ShardOptions options,
                                 const std::optional<ShardGroups>& groups)
    : context_(context),
      stage_(options.stage),
      shards_(groups.value_or(ShardGroups{context.communicator}), with_patience(options, context.patience)) {}

void ShardedStrategy::prepare(const TrainingParts& parts, const Deadline& /*deadline*/) {
  limits_ = parts.limits;
  scaler_ = parts.scaler;
  before_update_ = parts.before_update;
  network_ = shards_.build([&] { return parts.build(context_.device); });
  shards_.own(*network_, parts.slices ? parts.slices(*network_) : std::map<std::string, TensorPart>());
  optimizer_ = parts.make_optimizer(shards_.owned());
  guard_ = parts.update_guard();
  if (guard_ != nullptr) guard_->attach(*optimizer_);
}

void ShardedStrategy::load(const SavedState& state, const Deadline& deadline) {
  check_values_together(*state.optimizer, context_.communicator, deadline);
  if (shards_.reads_parts()) {
    check_values_together(*state.model, context_.communicator, deadline);
    shards_.load_model(*state.model);
  } else {
    network_->load_state_dict(load_tensors(*state.model, context_.device));
  }
  optimizer_->load_state(
      shards_.load_state(*state.optimizer, [](const std::string& saved) { return std::optional(saved); }));
}

void ShardedStrategy::step(Passes& passes, Exchange exchange) {
  const bool all = exchange == Exchange::all;
  shards_.begin_step();
  // Where gradients are not kept, each pass is exchanged; else the last one, with the sum of all.
  const bool each = stage_ != ShardStage::optimizer;
  for (std::size_t i = 0; i < passes.count(); ++i)
    run_pass(passes, i, all && (each || i + 1 == passes.count()));
  if (!all) return shards_.drop_step();
  {
    const PhaseScope phase = context_.timer.phase(Phase::communication);
    shards_.finish_step();
    passes.gradients_done();
  }
  update();
}

void ShardedStrategy::run_pass(Passes& passes, std::size_t i, bool exchange) {
  const Tensors inputs = passes.inputs(i);
  Tensor loss;
  {
    const PhaseScope phase = context_.timer.phase(Phase::forward);
    shards_.begin_use(ParameterUse::forward);
    loss = passes.loss(i, (*network_)(inputs));
  }
  {
    const PhaseScope phase = context_.timer.phase(Phase::backward);
    if (i + 1 == passes.count()) passes.losses_done();
    shards_.begin_use(ParameterUse::backward);
    shards_.begin_pass(exchange);
    start_backward(loss, passes.weight(i), scaler_);
  }
  if (!exchange) return;
  const PhaseScope phase = context_.timer.phase(Phase::communication);
  shards_.finish_pass();
}

void ShardedStrategy::update() {
  {
    const PhaseScope phase = context_.timer.phase(Phase::optimizer);
    const NoGrad no_grad;
    const std::vector<Tensor> gradients = optimizer_->gradients();
    if (guard_ != nullptr) {
      guard_->inspect(gradients);
      agree_on_overflow(*guard_, context_.communicator, patience());
    }
    if (before_update_) before_update_();
    if (limits_.value) clip_grad_value(gradients, *limits_.value);
    if (limits_.norm) clip_to_norm(gradients, *limits_.norm);
    optimizer_->step();
    if (guard_ != nullptr) guard_->update();
  }
  const PhaseScope phase = context_.timer.phase(Phase::communication);
  shards_.take_update();
}

// The norm of all ranks' parts together.
void ShardedStrategy::clip_to_norm(const std::vector<Tensor>& gradients, double most) {
  const bool has_any = std::ranges::any_of(gradients, &Tensor::defined);
  const Tensor own = has_any ? total_norm(gradients) : Tensor::zeros({}, context_.device);
  const Tensor squares = mul(own, own);
  shards_.parts().all_reduce(span_of(squares), ReduceOp::sum, "norm of the gradients")->wait(patience());
  squares.mark_modified();
  scale_to_norm(gradients, sqrt(squares), most);
}

void ShardedStrategy::settle(const Deadline& deadline) {
  copy_from_first_rank(context_.communicator, network_->named_buffers(), deadline);
}

Tensors ShardedStrategy::evaluate(const Tensors& inputs) {
  const NoGrad no_grad;
  shards_.begin_use(ParameterUse::evaluation);
  return (*network_)(inputs);
}

std::string ShardedStrategy::account(std::int64_t steps) const {
  return shards_.account(context_.device->peak_allocated_bytes(), steps);
}

}  // namespace dtrain
