// Lion: steps by the sign of a momentum (Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023).
#pragma once

#include "runtime/optim/stateful_optimizer.h"

namespace dtrain {

struct LionOptions {
  double lr = 1e-4;  ///< a third to a tenth of AdamW's
  double beta1 = 0.9, beta2 = 0.99;
  double weight_decay = 0;  ///< decoupled: three to ten times AdamW's
};

/// w *= 1 - lr · weight_decay; w -= lr · sign(beta1 · m + (1 - beta1) · g); m = beta2 · m + (1 - beta2) · g.
/// State:
/// "<parameter>.exp_avg", half of AdamW's, and the count of steps. Can be recorded.
class Lion : public StatefulOptimizer {
 public:
  /// Throws UsageError naming the option for values outside their range.
  Lion(NamedTensors parameters, const LionOptions& options);
  explicit Lion(const std::vector<ParameterGroup<LionOptions>>& groups);

 protected:
  void run(std::size_t group, std::int64_t step, const DeviceGroup& devices,
           std::span<const OptimizerSlot> slots) override;

 private:
  std::vector<LionOptions> options_;  ///< of each group
};

}  // namespace dtrain
