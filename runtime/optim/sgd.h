// torch.optim.SGD: weight decay, momentum with dampening, Nesterov.
#pragma once

#include "runtime/optim/optimizer.h"

namespace dtrain {

struct SgdOptions {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
};

/// State: "<parameter>.momentum_buffer", once a parameter has had its first step with momentum.
class Sgd : public Optimizer {
 public:
  /// Throws UsageError naming the option for negative values, or Nesterov without momentum or with dampening.
  Sgd(NamedTensors parameters, const SgdOptions& options);
  explicit Sgd(const std::vector<ParameterGroup<SgdOptions>>& groups);
  NamedTensors named_state() const override;
  void load_state(const NamedTensors& state) override;

 protected:
  void update() override;
  void count_step() override;

 private:
  void apply(std::size_t group, bool first);

  std::vector<SgdOptions> options_;  ///< of each group
  std::int64_t attempts_ = 0;    ///< steps since construction, skipped ones included; -1: buffers were loaded
  std::vector<Tensor> buffers_;  ///< undefined until the parameter's first step
};

}  // namespace dtrain
