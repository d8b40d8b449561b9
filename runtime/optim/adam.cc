#include "runtime/optim/adam.h"

#include "runtime/optim/option_checks.h"

namespace dtrain {
namespace {

void check_options(std::string_view name, const AdamOptions& options) {
  require_option(options.beta1 >= 0 && options.beta1 < 1, name, "beta1", "in [0, 1)", options.beta1);
  require_option(options.beta2 >= 0 && options.beta2 < 1, name, "beta2", "in [0, 1)", options.beta2);
  require_not_negative(name, "eps", options.eps);
  require_not_negative(name, "weight_decay", options.weight_decay);
}

}  // namespace

MomentOptimizer::MomentOptimizer(std::string_view name,
                                 const std::vector<ParameterGroup<AdamOptions>>& groups, WeightDecay decay)
    : StatefulOptimizer(groups, {"exp_avg", "exp_avg_sq"}), decay_(decay) {
  for (const auto& group : groups) {
    check_options(name, group.options);
    options_.push_back(group.options);
  }
}

void MomentOptimizer::run(std::size_t group, std::int64_t step, const DeviceGroup& devices,
                          std::span<const OptimizerSlot> slots) {
  const AdamOptions& options = options_[group];
  devices.kernels().adamw(slots, {lr(group), options.beta1, options.beta2, options.eps, options.weight_decay,
                                  step, devices.gate(), changes(group), decay_ == WeightDecay::of_weight});
}

Adam::Adam(NamedTensors parameters, const AdamOptions& options)
    : Adam(std::vector<ParameterGroup<AdamOptions>>{{std::move(parameters), options}}) {}

Adam::Adam(const std::vector<ParameterGroup<AdamOptions>>& groups)
    : MomentOptimizer("Adam", groups, WeightDecay::of_gradient) {}

}  // namespace dtrain
