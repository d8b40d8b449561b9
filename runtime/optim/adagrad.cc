#include "runtime/optim/adagrad.h"

#include "runtime/optim/option_checks.h"

namespace dtrain {
namespace {

void check_options(const AdagradOptions& options) {
  require_not_negative("Adagrad", "lr_decay", options.lr_decay);
  require_not_negative("Adagrad", "weight_decay", options.weight_decay);
  require_not_negative("Adagrad", "initial_accumulator_value", options.initial_accumulator_value);
  require_not_negative("Adagrad", "eps", options.eps);
}

}  // namespace

Adagrad::Adagrad(NamedTensors parameters, const AdagradOptions& options)
    : Adagrad(std::vector<ParameterGroup<AdagradOptions>>{{std::move(parameters), options}}) {}

Adagrad::Adagrad(const std::vector<ParameterGroup<AdagradOptions>>& groups)
    : StatefulOptimizer(groups, {"", "sum"}) {
  for (const auto& group : groups) {
    check_options(group.options);
    options_.push_back(group.options);
  }
}

void Adagrad::run(std::size_t group, std::int64_t step, const DeviceGroup& devices,
                  std::span<const OptimizerSlot> slots) {
  const AdagradOptions& options = options_[group];
  devices.kernels().adagrad(slots, {lr(group), options.lr_decay, options.weight_decay, options.eps, step,
                                    devices.gate(), changes(group)});
}

}  // namespace dtrain
