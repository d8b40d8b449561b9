// The same bits for any number of workers: a batch is always cut into V parts, each a pass of its own, and
// gradients are added up along one fixed tree over the parts, whoever computed them (EasyScale, SC'23, has
// the idea).
//
//     VirtualWorkersStrategy strategy(context, 8);     // the weights of 1, 2, 3, … 8 ranks are the same bits
#pragma once

#include "parallel/data/bucket_gradient.h"
#include "parallel/data/replicated_strategy.h"
#include "parallel/data/tree_reducer.h"

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
  ~VirtualWorkersStrategy() override;

  std::string_view name() const noexcept override { return "virtual workers"; }
  DataShare share() const noexcept override { return {run_.first, parts_, run_.count()}; }

  void begin(const Deadline& deadline) override;
  void step(Passes& passes, Exchange exchange) override;
  /// None: sums of parts change places from pass to pass.
  std::optional<int> variant(std::int64_t /*step*/) const override { return std::nullopt; }
  void settle(const Deadline& deadline) override;
  void exchange_alone(const Deadline& deadline) override;

  /// Bytes this rank sent and received so far; after begin().
  std::uint64_t bytes() const noexcept { return reducer_->bytes(); }

 private:
  void run_part(Passes& passes, std::size_t i, bool exchange);
  void attach(std::size_t index);
  /// Gradients of the next part go where the reducer wants them.
  void place_gradients();
  /// The sums over all parts, where the optimizer finds them.
  void take_sums();
  std::vector<GradientSlot> slots() const;

  int parts_;
  PartRange run_;
  BucketOptions buckets_;
  NamedTensors parameters_;  ///< those that learn, in the module's order
  std::vector<BucketGradient> gradients_;
  std::unique_ptr<TreeReducer> reducer_;
  std::unique_ptr<TreeReducer> idle_;  ///< the same buckets, for exchange_alone(); made when first needed
  bool exchanging_ = false;            ///< what is ready belongs to a step that is shared
};

}  // namespace dtrain
