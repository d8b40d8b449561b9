// The same bits for any number of workers: a batch is always cut into V parts, each a pass of its own, and
// gradients are added up along one fixed tree over the parts, on any worker (EasyScale, SC'23, has
// the idea).
#pragma once

#include "parallel/sync/fixed_tree_gradients.h"
#include "parallel/sync/gradient_sync.h"

namespace dtrain {

/// A rank computes micro_batches_of(parts, rank, ranks), one pass a part, so MicroBatches::count() must be
/// share().parts; backwards run in the order of the passes. What a network remembers of its batches (running
/// statistics) is what the first part left, as in data parallelism it is what rank 0 did. Bits are the same
/// where kernels give the same bits: on one kind of device, with the same number of threads for the math
/// library. Sums are formed on the context's device, wherever parameters are.
class FixedTreeSync final : public GradientSync {
 public:
  /// Throws UsageError where there are fewer parts than ranks. `buckets`: the same on all ranks; any gives
  /// the same bits.
  FixedTreeSync(const StrategyContext& context, int parts, const BucketOptions& buckets = {},
                OptimizerState state = OptimizerState::everywhere);

  void begin(const Deadline& deadline) override;
  /// Throws UsageError for another number of passes than this rank has parts.
  void begin_step(std::size_t passes) override;
  void after_forward(std::size_t pass, std::size_t count) override {
    memory_.after_forward(network(), pass, count);
  }
  /// The parts, not the ranks, whose number must not show.
  double loss_divisor() const noexcept override { return share_.size; }
  void run_backward(const MicroBatchBackward& which, const std::function<void()>& body) override;
  void finish(const Deadline& deadline) override;
  void drop_step() override { memory_.put_back(); }
  void exchange_alone(const Deadline& deadline) override { gradients_->exchange_alone(deadline); }

 private:
  BucketOptions buckets_;
  std::unique_ptr<FixedTreeGradients> gradients_;
  FirstPassBuffers memory_;
};

}  // namespace dtrain
