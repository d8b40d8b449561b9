#include "parallel/data/virtual_workers_strategy.h"

#include <fmt/format.h>

#include "parallel/data/equal_start.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

NamedTensors copies_of(const NamedTensors& tensors) {
  NamedTensors copies;
  for (const auto& [name, tensor] : tensors) copies.emplace_back(name, tensor.detach().clone());
  return copies;
}

}  // namespace

VirtualWorkersStrategy::VirtualWorkersStrategy(const StrategyContext& context, int parts,
                                               const BucketOptions& buckets, OptimizerState state)
    : ReplicatedStrategy(context, state),
      parts_(parts),
      run_(parts_of(parts, context.communicator.rank(), context.communicator.size())),
      buckets_(buckets) {
  if (parts >= context.communicator.size()) return;
  throw UsageError(fmt::format("virtual workers: expected at least one part for each of {} ranks, got {}",
                               context.communicator.size(), parts));
}

VirtualWorkersStrategy::~VirtualWorkersStrategy() {
  // The tensors may outlive us; their gradients keep the buckets' memory, but nothing calls us any more.
  for (NamedTensor& parameter : parameters_) parameter.second.on_grad_ready({});
}

std::vector<GradientSlot> VirtualWorkersStrategy::slots() const {
  std::vector<GradientSlot> slots;
  for (const auto& [name, tensor] : parameters_)
    slots.push_back({name, static_cast<std::size_t>(tensor.numel()), tensor.dtype(), tensor.shape()});
  return slots;
}

void VirtualWorkersStrategy::begin(const Deadline& deadline) {
  const NamedTensors state = network_->state_dict();
  check_same_model(context_.communicator, state, deadline);
  copy_from_first_rank(context_.communicator, state, deadline);
  for (NamedTensor& parameter : network_->named_parameters()) {
    if (parameter.second.requires_grad()) parameters_.push_back(std::move(parameter));
  }
  if (parameters_.empty())
    throw UsageError("virtual workers: the module has no parameter that requires a gradient");
  reducer_ = std::make_unique<TreeReducer>(context_.communicator, context_.device, slots(), parts_, buckets_);
  for (std::size_t index = 0; index < parameters_.size(); ++index) attach(index);
}

void VirtualWorkersStrategy::attach(std::size_t index) {
  gradients_.emplace_back(parameters_[index].second, context_.device);
  parameters_[index].second.on_grad_ready([this, index] {
    if (!exchanging_ || !parameters_[index].second.grad().defined()) return;
    gradients_[index].bring();
    reducer_->mark_ready(index);
  });
}

void VirtualWorkersStrategy::place_gradients() {
  for (std::size_t index = 0; index < gradients_.size(); ++index)
    gradients_[index].place(reducer_->gradient(index), reducer_->memory_of(index));
}

void VirtualWorkersStrategy::take_sums() {
  for (BucketGradient& gradient : gradients_) {
    gradient.take_back();
    gradient.give();
  }
}

void VirtualWorkersStrategy::step(Passes& passes, Exchange exchange) {
  const bool all = exchange == Exchange::all;
  if (passes.count() != static_cast<std::size_t>(run_.count())) {
    throw UsageError(fmt::format("virtual workers: expected a pass for each of {} parts of rank {}, got {}",
                                 run_.count(), context_.communicator.rank(), passes.count()));
  }
  // Of one rank's parts the first alone moves running statistics on.
  const NamedTensors buffers = network_->named_buffers();
  NamedTensors after_first;
  for (std::size_t i = 0; i < passes.count(); ++i) {
    run_part(passes, i, all);
    if (i == 0 && passes.count() > 1) after_first = copies_of(buffers);
  }
  for (std::size_t i = 0; i < after_first.size(); ++i) {
    Tensor buffer = buffers[i].second;
    buffer.copy_from(after_first[i].second);
  }
  if (all) {
    const PhaseScope phase = context_.timer.phase(Phase::communication);
    reducer_->finish(patience());
    passes.gradients_done();
    take_sums();
  }
  update();
}

void VirtualWorkersStrategy::run_part(Passes& passes, std::size_t i, bool exchange) {
  const Tensors inputs = passes.inputs(i);
  network_->zero_grad();
  place_gradients();
  Tensor loss;
  {
    const PhaseScope phase = context_.timer.phase(Phase::forward);
    loss = passes.loss(i, (*network_)(inputs));
  }
  const PhaseScope phase = context_.timer.phase(Phase::backward);
  if (i + 1 == passes.count()) passes.losses_done();
  exchanging_ = exchange;
  if (exchange) reducer_->begin_pass();
  // Divided by the parts, not by the ranks, whose number must not show.
  start_backward(loss, passes.weight(i) / parts_, scaler_);
  if (exchange) reducer_->end_pass();
  exchanging_ = false;
}

void VirtualWorkersStrategy::settle(const Deadline& deadline) {
  copy_from_first_rank(context_.communicator, network_->named_buffers(), deadline);
}

void VirtualWorkersStrategy::exchange_alone(const Deadline& deadline) {
  if (!idle_)
    idle_ = std::make_unique<TreeReducer>(context_.communicator, context_.device, slots(), parts_, buckets_);
  for (int part = 0; part < run_.count(); ++part) {
    idle_->begin_pass();
    idle_->end_pass();
  }
  idle_->finish(deadline);
}

}  // namespace dtrain
