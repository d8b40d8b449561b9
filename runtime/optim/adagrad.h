// torch.optim.Adagrad (Duchi, Hazan and Singer 2011).
#pragma once

#include "runtime/optim/optimizer.h"

namespace dtrain {

struct AdagradOptions {
  double lr = 1e-2;
  double lr_decay = 0;      ///< the rate of step t is lr / (1 + (t - 1) · lr_decay)
  double weight_decay = 0;  ///< added to the gradient (L2)
  double initial_accumulator_value = 0;
  double eps = 1e-10;
};

/// State of each parameter that has had a step: "<parameter>.sum" and "<parameter>.step" (i64 [1]).
class Adagrad : public Optimizer {
 public:
  Adagrad(NamedTensors parameters, const AdagradOptions& options);
  /// Throws UsageError naming the option for values outside their range.
  explicit Adagrad(const std::vector<ParameterGroup<AdagradOptions>>& groups);
  NamedTensors named_state() const override;
  void load_state(const NamedTensors& state) override;

 protected:
  void update() override;
  void count_step() override;

 private:
  struct Total {
    Tensor sum;              ///< undefined until the first step
    std::int64_t steps = 0;  ///< those that the gate held back included
    bool attempted = false;  ///< since construction: such steps may be among them
  };

  void update_group(std::size_t group);

  std::vector<AdagradOptions> options_;  ///< of each group
  std::vector<Total> totals_;
};

}  // namespace dtrain
