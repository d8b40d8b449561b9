// torch.optim.RMSprop (Hinton's lecture 6e), also centered (Graves 2013) and with momentum.
#pragma once

#include "runtime/optim/optimizer.h"

namespace dtrain {

struct RmsPropOptions {
  double lr = 1e-2;
  double alpha = 0.99;  ///< how much of the running averages is kept
  double eps = 1e-8;
  double weight_decay = 0;  ///< added to the gradient (L2)
  double momentum = 0;
  bool centered = false;  ///< divide by the deviation of the gradient instead of its root mean square
};

/// State of each parameter that has had a step: "<parameter>.square_avg", with momentum
/// "<parameter>.momentum_buffer", and centered "<parameter>.grad_avg".
class RmsProp : public Optimizer {
 public:
  RmsProp(NamedTensors parameters, const RmsPropOptions& options);
  /// Throws UsageError naming the option for values outside their range.
  explicit RmsProp(const std::vector<ParameterGroup<RmsPropOptions>>& groups);
  NamedTensors named_state() const override;
  void load_state(const NamedTensors& state) override;

 protected:
  void update() override;
  void count_step() override {}

 private:
  /// Undefined until the first step, or where the options need none.
  struct Averages {
    Tensor square, momentum, mean;
  };

  void update_group(std::size_t group);

  std::vector<RmsPropOptions> options_;  ///< of each group
  std::vector<Averages> averages_;
};

}  // namespace dtrain
