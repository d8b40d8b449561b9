// The same bits for any number of workers: a batch is always cut into V parts, each a pass of its own, and
// gradients are added up along one fixed tree over the parts, whoever computed them (EasyScale, SC'23, has
// the idea).
//
//     VirtualWorkersStrategy strategy(context, 8);     // the weights of 1, 2, 3, … 8 ranks are the same bits
#pragma once

#include "parallel/sync/part_gradients.h"
#include "parallel/sync/part_tree.h"
#include "parallel/sync/replicated_strategy.h"

namespace dtrain {

/// A rank computes parts_of(parts, rank, ranks), one pass a part, so Passes::count() must be share().parts.
/// What a network remembers of its batches (running statistics) is what the first part left, as in data
/// parallelism it is what rank 0 did. Bits are the same where kernels give the same bits: on one kind of
/// device, with the same number of threads for the math library. Sums are formed on the context's device,
/// wherever parameters are.
class VirtualWorkersStrategy final : public ReplicatedStrategy {
 public:
  /// Throws UsageError where there are fewer parts than ranks. `buckets`: the same on all ranks; any gives
  /// the same bits.
  VirtualWorkersStrategy(const StrategyContext& context, int parts, const BucketOptions& buckets = {},
                         OptimizerState state = OptimizerState::everywhere);

  std::string_view name() const noexcept override { return "virtual workers"; }
  DataShare share() const noexcept override { return {run_.first, parts_, run_.count()}; }

  void begin(const Deadline& deadline) override;
  void step(Passes& passes, Exchange exchange) override;
  /// None: sums of parts change places from pass to pass.
  std::optional<int> variant(std::int64_t /*step*/) const override { return std::nullopt; }
  void settle(const Deadline& deadline) override;
  void exchange_alone(const Deadline& deadline) override { gradients_->exchange_alone(deadline); }

  /// Bytes this rank sent and received so far; after begin().
  std::uint64_t bytes() const noexcept { return gradients_->bytes(); }

 private:
  void run_part(Passes& passes, std::size_t i, bool exchange);

  int parts_;
  PartRange run_;
  BucketOptions buckets_;
  std::unique_ptr<PartGradients> gradients_;
};

}  // namespace dtrain
