// torch.optim.Adam: bias-corrected moments (Kingma and Ba 2014); weight decay is added to the gradient (L2).
// And what it shares with AdamW, which decays the weights themselves.
#pragma once

#include "runtime/optim/stateful_optimizer.h"

namespace dtrain {

struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
};

enum class WeightDecay { of_gradient, of_weight };

/// Its state: "<parameter>.exp_avg", "<parameter>.exp_avg_sq" and the count of steps.
class MomentOptimizer : public StatefulOptimizer {
 protected:
  /// Throws UsageError naming `name` and the option for values outside their range.
  MomentOptimizer(std::string_view name, const std::vector<ParameterGroup<AdamOptions>>& groups,
                  WeightDecay decay);
  void run(std::size_t group, std::int64_t step, const DeviceGroup& devices,
           std::span<const OptimizerSlot> slots) override;

 private:
  std::vector<AdamOptions> options_;  ///< of each group
  WeightDecay decay_;
};

class Adam : public MomentOptimizer {
 public:
  Adam(NamedTensors parameters, const AdamOptions& options);
  explicit Adam(const std::vector<ParameterGroup<AdamOptions>>& groups);
};

}  // namespace dtrain
