// Local SGD (Stich 2019; torch's PostLocalSGDOptimizer): every rank takes steps of its own, and the ranks'
// parameters are averaged now and then instead of their gradients in each step.
#pragma once

#include "parallel/sync/replicated_strategy.h"

namespace dtrain {

/// Parameters are averaged after every `sync_every` steps, and by settle(): before evaluation and saving. The
/// optimizer's state is each rank's own and averaged by settle() only, so that what is saved is the state of
/// all. Averaging after each step gives the numbers of data parallelism, within rounding, with an optimizer
/// that is linear in the gradient (SGD, with momentum too). What a rank did not use in a step and another did
/// counts as zero there.
class LocalSgdStrategy final : public ReplicatedStrategy {
 public:
  /// `sync_every` of at least 1, the same on all ranks; else UsageError.
  LocalSgdStrategy(const StrategyContext& context, std::int64_t sync_every);

  std::string_view name() const noexcept override { return "local SGD"; }
  /// Throws UsageError for loss scaling, whose overflow each rank would see alone.
  void prepare(const TrainingParts& parts, const Deadline& deadline) override;
  void begin(const Deadline& deadline) override;
  void step(Passes& passes, Exchange exchange) override;
  /// None: steps that average are unlike the others.
  std::optional<int> variant(std::int64_t /*step*/) const override { return std::nullopt; }
  bool settling_counts() const noexcept override { return context_.communicator.size() > 1; }
  void settle(const Deadline& deadline) override;
  /// Nobody's state is held twice between two averages.
  Replicas replicas() override { return {}; }
  void exchange_alone(const Deadline& deadline) override { average_parameters(deadline); }

  /// How often parameters were averaged so far.
  std::int64_t averages() const noexcept { return averages_; }

 private:
  void average_parameters(const Deadline& deadline);
  void average(const NamedTensors& tensors, const Deadline& deadline);

  std::int64_t sync_every_, since_ = 0, averages_ = 0;
  bool together_ = true;  ///< the step is one that all ranks take
};

}  // namespace dtrain
