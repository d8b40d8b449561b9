#include "parallel/sync/fixed_tree_sync.h"

#include <fmt/format.h>

#include "parallel/sync/micro_batch_tree.h"
#include "runtime/base/error.h"

namespace dtrain {

FixedTreeSync::FixedTreeSync(const StrategyContext& context, int parts, const BucketOptions& buckets,
                             OptimizerState state)
    : GradientSync(context, state), buckets_(buckets) {
  if (parts < dp_group().size()) {
    throw UsageError(
        fmt::format("virtual workers: expected at least one micro-batch for each of {} ranks, got {}",
                    dp_group().size(), parts));
  }
  const MicroBatchRange run = micro_batches_of(parts, dp_group().rank(), dp_group().size());
  share_ = {run.first, parts, run.count()};
}

void FixedTreeSync::begin(const Deadline& deadline) {
  GradientSync::begin(deadline);
  gradients_ =
      std::make_unique<FixedTreeGradients>(dp_group(), context_.device, network(), share_.size, buckets_);
}

void FixedTreeSync::begin_step(std::size_t passes) {
  if (passes != static_cast<std::size_t>(share_.parts)) {
    throw UsageError(fmt::format("virtual workers: expected {} micro-batches on rank {}, got {}",
                                 share_.parts, dp_group().rank(), passes));
  }
  GradientSync::begin_step(passes);
}

void FixedTreeSync::run_backward(const MicroBatchBackward& which, const std::function<void()>& body) {
  gradients_->begin_part(which.exchange);
  body();
  gradients_->end_part();
}

void FixedTreeSync::finish(const Deadline& deadline) {
  memory_.put_back();
  gradients_->finish(deadline);
  gradients_->assign();
}

}  // namespace dtrain
