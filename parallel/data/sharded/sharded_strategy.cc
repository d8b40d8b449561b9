#include "parallel/data/sharded/sharded_strategy.h"

#include <fmt/format.h>

#include "parallel/data/equal_start.h"
#include "parallel/span_of.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/autograd/ops.h"
#include "runtime/base/error.h"
#include "runtime/optim/clip.h"

namespace dtrain {
namespace {

NamedTensors learning(const Module& network) {
  NamedTensors parameters;
  for (NamedTensor& parameter : network.named_parameters()) {
    if (parameter.second.requires_grad()) parameters.push_back(std::move(parameter));
  }
  if (parameters.empty())
    throw UsageError("sharded data parallel: the module has no parameter that requires a gradient");
  return parameters;
}

}  // namespace

ShardedStrategy::ShardedStrategy(const StrategyContext& context, ShardOptions options)
    : context_(context), options_(options) {
  options_.patience = context_.patience;
}

void ShardedStrategy::prepare(const TrainingParts& parts, const Deadline& /*deadline*/) {
  network_ = parts.build(context_.device);
  limits_ = parts.limits;
  const NamedTensors whole = learning(*network_);
  exchange_ = std::make_unique<ShardExchange>(context_.communicator, whole, options_);
  NamedTensors owned;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const auto& [name, tensor] = whole[i];
    parameters_.push_back({name, tensor, exchange_->owned(i)});
    owned_.emplace_back();
    if (!parameters_.back().is_owned()) continue;
    owned_.back() = parameters_.back().owned();
    owned_.back().set_requires_grad(true);
    owned.emplace_back(name, owned_.back());
  }
  if (owned.empty()) {
    throw UsageError(fmt::format(
        "sharded data parallel: expected a network with an element for each of {} ranks, got {} elements, of "
        "which rank {} owns none; use fewer workers",
        share().size, network_->parameter_count(), share().rank));
  }
  optimizer_ = parts.make_optimizer(owned);
  scaler_ = parts.scaler;
  if (scaler_ != nullptr) scaler_->attach(*optimizer_);
}

// Parameters are whole on every rank, and so are read whole; of the optimizer's state each rank reads its
// own.
void ShardedStrategy::load(const SavedState& state, const Deadline& deadline) {
  check_values_together(*state.optimizer, context_.communicator, deadline);
  network_->load_state_dict(load_tensors(*state.model, context_.device));
  optimizer_->load_state(owned_state(*state.optimizer, parameters_, context_.device));
}

void ShardedStrategy::begin(const Deadline& deadline) {
  const NamedTensors state = network_->state_dict();
  check_same_model(context_.communicator, state, deadline);
  copy_from_first_rank(context_.communicator, state, deadline);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    Tensor& parameter = parameters_[i].whole;
    parameter.on_grad_ready([this, i] {
      if (parameters_[i].whole.grad().defined()) exchange_->mark_ready(i);
    });
  }
}

void ShardedStrategy::step(Passes& passes, Exchange exchange) {
  const bool all = exchange == Exchange::all;
  network_->zero_grad();
  exchange_->begin_step();
  // Where gradients are not kept, each pass is exchanged; else the last one, with the sum of all.
  const bool each = options_.stage == ShardStage::gradients;
  for (std::size_t i = 0; i < passes.count(); ++i)
    run_pass(passes, i, all && (each || i + 1 == passes.count()));
  if (!all) return network_->zero_grad();
  {
    const PhaseScope phase = context_.timer.phase(Phase::communication);
    passes.gradients_done();
  }
  update();
}

void ShardedStrategy::run_pass(Passes& passes, std::size_t i, bool exchange) {
  const Tensors inputs = passes.inputs(i);
  Tensor loss;
  {
    const PhaseScope phase = context_.timer.phase(Phase::forward);
    loss = passes.loss(i, (*network_)(inputs));
  }
  {
    const PhaseScope phase = context_.timer.phase(Phase::backward);
    if (i + 1 == passes.count()) passes.losses_done();
    exchange_->set_sync(exchange);
    start_backward(loss, passes.weight(i), scaler_);
  }
  if (!exchange) return;
  const PhaseScope phase = context_.timer.phase(Phase::communication);
  exchange_->finish_pass();
}

void ShardedStrategy::update() {
  {
    const PhaseScope phase = context_.timer.phase(Phase::optimizer);
    const NoGrad no_grad;
    for (std::size_t i = 0; i < owned_.size(); ++i) {
      if (owned_[i].defined()) owned_[i].set_grad(exchange_->owned_gradient(i));
    }
    const std::vector<Tensor> gradients = optimizer_->gradients();
    if (scaler_ != nullptr) {
      scaler_->unscale(gradients);
      context_.communicator.all_reduce(span_of(scaler_->found()), ReduceOp::max, "overflow")
          ->wait(patience());
    }
    if (limits_.value) clip_grad_value(gradients, *limits_.value);
    if (limits_.norm) clip_to_norm(gradients, *limits_.norm);
    optimizer_->step();
    if (scaler_ != nullptr) scaler_->update();
    optimizer_->zero_grad();
    network_->zero_grad();
  }
  const PhaseScope phase = context_.timer.phase(Phase::communication);
  exchange_->gather_parameters();
}

// The norm of all ranks' parts together.
void ShardedStrategy::clip_to_norm(const std::vector<Tensor>& gradients, double most) {
  const Tensor own = total_norm(gradients);
  const Tensor squares = mul(own, own);
  context_.communicator.all_reduce(span_of(squares), ReduceOp::sum, "norm of the gradients")
      ->wait(patience());
  squares.mark_modified();
  scale_to_norm(gradients, sqrt(squares), most);
}

void ShardedStrategy::settle(const Deadline& deadline) {
  copy_from_first_rank(context_.communicator, network_->named_buffers(), deadline);
}

Tensors ShardedStrategy::evaluate(const Tensors& inputs) {
  const NoGrad no_grad;
  return (*network_)(inputs);
}

StateParts ShardedStrategy::save() {
  NamedTensors others = network_->named_buffers();
  for (const auto& [name, tensor] : network_->named_parameters()) {
    if (!tensor.requires_grad()) others.emplace_back(name, tensor);  // frozen: nobody owns a part
  }
  return sharded_parts(parameters_, others, optimizer_->named_state(), share().rank);
}

void ShardedStrategy::exchange_alone(const Deadline& /*deadline*/) {
  exchange_->exchange_nothing(patience());
}

}  // namespace dtrain
