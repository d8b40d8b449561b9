// Local SGD (Stich 2019; torch's PostLocalSGDOptimizer): every rank takes steps of its own, and the ranks'
// parameters are averaged now and then instead of their gradients in each step.
#pragma once

#include "parallel/sync/gradient_sync.h"

namespace dtrain {

/// Parameters are averaged after every `sync_every` steps, and by sync_state(): before evaluation and saving.
/// The optimizer's state is each rank's own and averaged by sync_state() only, so that what is saved is the
/// state of all. Averaging after each step gives the numbers of data parallelism, within rounding, with an
/// optimizer that is linear in the gradient (SGD, with momentum too). What a rank did not use in a step and
/// another did counts as zero there.
class LocalSgdSync final : public GradientSync {
 public:
  /// `sync_every` of at least 1, the same on all ranks; else UsageError.
  LocalSgdSync(const StrategyContext& context, std::int64_t sync_every);

  bool sync_state_alters_steps() const noexcept override { return dp_group().size() > 1; }
  /// Throws UsageError for loss scaling, whose overflow each rank would see alone.
  void attach(const SharedNetwork& shared) override;
  void finish(const Deadline& deadline) override;
  void take_update(bool exchange, const Deadline& deadline) override;
  void sync_state(const NamedTensors& state, const Deadline& deadline) override;
  /// Nothing is replicated between two averages.
  Replicas replicas(const NamedTensors& /*state*/) override { return {}; }
  void exchange_alone(const Deadline& deadline) override { average_parameters(deadline); }

  /// How often parameters were averaged so far.
  std::int64_t averages() const noexcept { return averages_; }

 private:
  void average_parameters(const Deadline& deadline);

  std::int64_t sync_every_, since_ = 0, averages_ = 0;
};

}  // namespace dtrain
