// Data parallelism: gradients are averaged in buckets while backward runs (torch's
// DistributedDataParallel).
#pragma once

#include "parallel/sync/data_parallel.h"
#include "parallel/sync/gradient_sync.h"

namespace dtrain {

class AllReduceSync final : public GradientSync {
 public:
  explicit AllReduceSync(const StrategyContext& context, ReducerOptions options = {},
                         OptimizerState state = OptimizerState::everywhere);

  /// Not where ranks wait for each other: who hands parameters over, and who left some out, which the others
  /// used.
  bool recordable() const noexcept override;
  void begin(const Deadline& deadline) override;
  /// Gradients of the last pass go to the peers while it runs; those of the passes before only add up.
  void run_backward(const MicroBatchBackward& which, const std::function<void()>& body) override;
  void finish(const Deadline& deadline) override { parallel_->finish(deadline); }
  void sync_state(const NamedTensors& state, const Deadline& deadline) override;
  /// Scales and all-reduces as many bytes in the same buckets.
  void exchange_alone(const Deadline& deadline) override;

 private:
  ReducerOptions options_;
  std::unique_ptr<DataParallel> parallel_;
  std::unique_ptr<Reducer> idle_;  ///< the same buckets, for exchange_alone(); made when first needed
};

}  // namespace dtrain
