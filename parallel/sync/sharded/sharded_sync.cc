#include "parallel/sync/sharded/sharded_sync.h"

namespace dtrain {
namespace {

ShardOptions with_patience(ShardOptions options, Duration patience) {
  options.patience = patience;
  return options;
}

}  // namespace

ShardedSync::ShardedSync(const StrategyContext& context, ShardOptions options,
                         const std::optional<ShardGroups>& groups)
    : GradientSync(context),
      stage_(options.stage),
      shards_(groups.value_or(ShardGroups{context.communicator}), with_patience(options, context.patience)) {
  equal_gradients_ = false;
}

void ShardedSync::attach(const SharedNetwork& shared) {
  GradientSync::attach(shared);
  shards_.own(shared.network, shared.parameters, shared.passes);
}

// Where gradients are not kept, each pass is exchanged; else the last one, with the sum of all.
bool ShardedSync::exchanges(const MicroBatchBackward& which) const noexcept {
  return which.exchange && (stage_ != ShardStage::optimizer || which.is_last);
}

void ShardedSync::run_backward(const MicroBatchBackward& which, const std::function<void()>& body) {
  shards_.begin_use(ParameterUse::backward);
  shards_.begin_pass(exchanges(which), which.chunk);
  body();
}

void ShardedSync::after_backward(const MicroBatchBackward& which) {
  if (!exchanges(which)) return;
  const PhaseScope phase = context_.timer.phase(Phase::communication);
  shards_.finish_pass();
}

void ShardedSync::take_update(bool /*exchange*/, const Deadline& /*deadline*/) {
  const PhaseScope phase = context_.timer.phase(Phase::communication);
  shards_.take_update();
}

}  // namespace dtrain
