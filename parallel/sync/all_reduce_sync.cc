#include "parallel/sync/all_reduce_sync.h"

namespace dtrain {

AllReduceSync::AllReduceSync(const StrategyContext& context, ReducerOptions options, OptimizerState state)
    : GradientSync(context, state), options_(std::move(options)) {
  if (!options_.device) options_.device = context.device;
  if (options_.exchange && options_.exchange->is_stateful()) hook_ = options_.exchange;
}

bool AllReduceSync::recordable() const noexcept {
  const bool asks = parallel_ && parallel_->asked_peers();
  return !partitions_state() && !asks;
}

void AllReduceSync::begin(const Deadline& deadline) {
  parallel_ = std::make_unique<DataParallel>(dp_group(), network(), deadline, options_);
}

void AllReduceSync::run_backward(const MicroBatchBackward& which, const std::function<void()>& body) {
  if (which.exchange && which.is_last) return body();
  const auto no_sync = parallel_->no_sync();
  body();
}

void AllReduceSync::sync_state(const NamedTensors& /*state*/, const Deadline& deadline) {
  parallel_->sync_buffers(deadline);
  if (options_.exchange) options_.exchange->sync_state(dp_group(), deadline);
}

void AllReduceSync::exchange_alone(const Deadline& deadline) {
  if (!idle_) idle_ = parallel_->make_idle_reducer();
  for (std::size_t index = idle_->slot_count(); index-- > 0;) idle_->mark_ready(index);
  idle_->finish(deadline);
}

}  // namespace dtrain
