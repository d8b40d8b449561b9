// torch.optim.AdamW: decoupled weight decay (Loshchilov and Hutter 2019), bias-corrected moments.
#pragma once

#include "runtime/optim/optimizer.h"

namespace dtrain {

struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 1e-2;
};

/// State of each parameter that has had a step: "<parameter>.exp_avg", "<parameter>.exp_avg_sq" and
/// "<parameter>.step" (i64 [1]).
class AdamW : public Optimizer {
 public:
  /// Throws UsageError naming the option for values outside their range.
  AdamW(NamedTensors parameters, const AdamWOptions& options);
  explicit AdamW(const std::vector<ParameterGroup<AdamWOptions>>& groups);
  NamedTensors named_state() const override;
  void load_state(const NamedTensors& state) override;

 protected:
  void update() override;
  void count_step() override;

 private:
  struct Moments {
    Tensor mean, variance;   ///< undefined until the first step
    std::int64_t steps = 0;  ///< those that the gate held back included
    bool attempted = false;  ///< since construction: such steps may be among them
  };

  void update_group(std::size_t group);

  std::vector<AdamWOptions> options_;  ///< of each group
  std::vector<Moments> moments_;
};

}  // namespace dtrain
