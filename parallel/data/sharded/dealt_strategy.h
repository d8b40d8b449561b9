// Data parallelism in which each rank keeps the optimizer's state of some parameters only, and updates these
// (DealtParameters). Gradients are averaged over all ranks as in DataParallelStrategy, so a step sends half
// as much again as ShardedStrategy's; in return parameters may be slices of others.
#pragma once

#include <optional>

#include "parallel/data/data_parallel_strategy.h"
#include "parallel/data/sharded/dealt_parameters.h"

namespace dtrain {

class DealtStrategy final : public DataParallelStrategy {
 public:
  using DataParallelStrategy::DataParallelStrategy;

  std::string_view name() const noexcept override { return "data parallel, optimizer dealt out"; }
  /// Throws UsageError for a network of fewer parameters than there are ranks.
  void prepare(const TrainingParts& parts, const Deadline& deadline) override;
  /// Every rank saves the state that it has.
  bool sharded() const noexcept override { return true; }
  void load(const SavedState& state, const Deadline& deadline) override;
  /// None: who hands parameters over waits for the others.
  std::optional<int> variant(std::int64_t /*step*/) const override { return std::nullopt; }
  StateParts save() override;
  StateParts replica() override { return {}; }
  /// Parameters; the optimizer's state is held once.
  Replicas replicas() override { return {&context_.communicator, network_->named_parameters()}; }

 private:
  void update() override;

  std::optional<DealtParameters> dealt_;
};

}  // namespace dtrain
