// torch.optim.Adagrad (Duchi, Hazan and Singer 2011).
#pragma once

#include "runtime/optim/stateful_optimizer.h"

namespace dtrain {

struct AdagradOptions {
  double lr = 1e-2;
  double lr_decay = 0;      ///< the rate of step t is lr / (1 + (t - 1) · lr_decay)
  double weight_decay = 0;  ///< added to the gradient (L2)
  double initial_accumulator_value = 0;
  double eps = 1e-10;
};

/// Its state: "<parameter>.sum" and the count of steps.
class Adagrad : public StatefulOptimizer {
 public:
  Adagrad(NamedTensors parameters, const AdagradOptions& options);
  /// Throws UsageError naming the option for values outside their range.
  explicit Adagrad(const std::vector<ParameterGroup<AdagradOptions>>& groups);

 protected:
  double initial_value(std::size_t group) const override { return options_[group].initial_accumulator_value; }
  void run(std::size_t group, std::int64_t step, const DeviceGroup& devices,
           std::span<const OptimizerSlot> slots) override;

 private:
  std::vector<AdagradOptions> options_;  ///< of each group
};

}  // namespace dtrain
