#include "parallel/sync/virtual_workers_strategy.h"

#include <fmt/format.h>

#include "parallel/sync/equal_start.h"
#include "runtime/base/error.h"

namespace dtrain {

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

void VirtualWorkersStrategy::begin(const Deadline& deadline) {
  const NamedTensors state = network_->state_dict();
  check_same_model(context_.communicator, state, deadline);
  copy_from_first_rank(context_.communicator, state, deadline);
  gradients_ =
      std::make_unique<PartGradients>(context_.communicator, context_.device, *network_, parts_, buckets_);
}

void VirtualWorkersStrategy::step(Passes& passes, Exchange exchange) {
  const bool all = exchange == Exchange::all;
  if (passes.count() != static_cast<std::size_t>(run_.count())) {
    throw UsageError(fmt::format("virtual workers: expected a pass for each of {} parts of rank {}, got {}",
                                 run_.count(), context_.communicator.rank(), passes.count()));
  }
  FirstPartMemory memory;
  for (std::size_t i = 0; i < passes.count(); ++i) {
    run_part(passes, i, all);
    memory.after_forward(*network_, i, passes.count());
  }
  memory.put_back();
  if (all) {
    const PhaseScope phase = context_.timer.phase(Phase::communication);
    gradients_->finish(patience());
    passes.gradients_done();
    gradients_->give();
  }
  update();
}

void VirtualWorkersStrategy::run_part(Passes& passes, std::size_t i, bool exchange) {
  const Tensors inputs = passes.inputs(i);
  Tensor loss;
  {
    const PhaseScope phase = context_.timer.phase(Phase::forward);
    loss = passes.loss(i, (*network_)(inputs));
  }
  const PhaseScope phase = context_.timer.phase(Phase::backward);
  if (i + 1 == passes.count()) passes.losses_done();
  gradients_->begin_part(exchange);
  // Divided by the parts, not by the ranks, whose number must not show.
  start_backward(loss, passes.weight(i) / parts_, scaler_);
  gradients_->end_part();
}

void VirtualWorkersStrategy::settle(const Deadline& deadline) {
  copy_from_first_rank(context_.communicator, network_->named_buffers(), deadline);
}

}  // namespace dtrain
