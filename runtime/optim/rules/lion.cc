#include "runtime/optim/rules/lion.h"

#include "runtime/optim/option_checks.h"

namespace dtrain {

Lion::Lion(NamedTensors parameters, const LionOptions& options)
    : Lion(std::vector<ParameterGroup<LionOptions>>{{std::move(parameters), options}}) {}

Lion::Lion(const std::vector<ParameterGroup<LionOptions>>& groups)
    : StatefulOptimizer(groups, {"exp_avg", ""}) {
  for (const auto& group : groups) {
    const LionOptions& options = group.options;
    require_option(options.beta1 >= 0 && options.beta1 < 1, "Lion", "beta1", "in [0, 1)", options.beta1);
    require_option(options.beta2 >= 0 && options.beta2 < 1, "Lion", "beta2", "in [0, 1)", options.beta2);
    require_not_negative("Lion", "weight_decay", options.weight_decay);
    options_.push_back(options);
  }
}

void Lion::run(std::size_t group, std::int64_t /*step*/, const DeviceGroup& devices,
               std::span<const OptimizerSlot> slots) {
  const LionOptions& options = options_[group];
  devices.kernels().lion(slots, {.lr = lr(group),
                                 .beta1 = options.beta1,
                                 .beta2 = options.beta2,
                                 .weight_decay = options.weight_decay,
                                 .gate = devices.gate(),
                                 .changes = changes(group)});
}

}  // namespace dtrain
