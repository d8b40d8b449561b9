// Data parallelism as a strategy: every rank holds the whole network and computes its share of each batch;
// gradients are averaged in buckets while backward goes on (torch's DistributedDataParallel).
#pragma once

#include "parallel/sync/data_parallel.h"
#include "parallel/sync/replicated_strategy.h"

namespace dtrain {

class DataParallelStrategy final : public ReplicatedStrategy {
 public:
  /// `waits_inside`: steps wait for peers while they compute (batch norm over all workers), so none can be
  /// recorded.
  explicit DataParallelStrategy(const StrategyContext& context, ReducerOptions options = {},
                                bool waits_inside = false, OptimizerState state = OptimizerState::everywhere);

  std::string_view name() const noexcept override { return "data parallel"; }
  void prepare(const TrainingParts& parts, const Deadline& deadline) override;
  /// With what the exchange of gradients remembers.
  void load(const SavedState& state, const Deadline& deadline) override;
  void begin(const Deadline& deadline) override;
  void step(Passes& passes, Exchange exchange) override;
  std::optional<int> variant(std::int64_t step) const override;
  bool settling_counts() const noexcept override;
  void settle(const Deadline& deadline) override;
  GradientExchange* remembers() noexcept override;
  /// Scales and all-reduces as many bytes in the same buckets.
  void exchange_alone(const Deadline& deadline) override;

 private:
  void compute(Passes& passes, std::size_t i, bool exchange);

  ReducerOptions options_;
  bool waits_inside_;
  std::unique_ptr<DataParallel> parallel_;
  std::unique_ptr<Reducer> idle_;  ///< the same buckets, for exchange_alone(); made when first needed
};

}  // namespace dtrain
