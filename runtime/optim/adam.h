// torch.optim.Adam: bias-corrected moments (Kingma and Ba 2014); weight decay is added to the gradient (L2).
// And what it shares with AdamW, which decays the weights themselves.
#pragma once

#include "runtime/optim/optimizer.h"

namespace dtrain {

struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
};

enum class WeightDecay { of_gradient, of_weight };

/// State of each parameter that has had a step: "<parameter>.exp_avg", "<parameter>.exp_avg_sq" and
/// "<parameter>.step" (i64 [1]).
class MomentOptimizer : public Optimizer {
 public:
  NamedTensors named_state() const override;
  void load_state(const NamedTensors& state) override;

 protected:
  /// Throws UsageError naming `name` and the option for values outside their range.
  MomentOptimizer(std::string_view name, const std::vector<ParameterGroup<AdamOptions>>& groups,
                  WeightDecay decay);
  void update() override;
  void count_step() override;

 private:
  struct Moments {
    Tensor mean, variance;   ///< undefined until the first step
    std::int64_t steps = 0;  ///< those that the gate held back included
    bool attempted = false;  ///< since construction: such steps may be among them
  };

  void update_group(std::size_t group);

  std::vector<AdamOptions> options_;  ///< of each group
  WeightDecay decay_;
  std::vector<Moments> moments_;
};

class Adam : public MomentOptimizer {
 public:
  Adam(NamedTensors parameters, const AdamOptions& options);
  explicit Adam(const std::vector<ParameterGroup<AdamOptions>>& groups);
};

}  // namespace dtrain
