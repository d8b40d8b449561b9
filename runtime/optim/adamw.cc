#include "runtime/optim/adamw.h"

namespace dtrain {
namespace {

std::vector<ParameterGroup<AdamOptions>> as_moments(const std::vector<ParameterGroup<AdamWOptions>>& groups) {
  std::vector<ParameterGroup<AdamOptions>> result;
  for (const auto& [parameters, options] : groups) {
    result.push_back(
        {parameters, {options.lr, options.beta1, options.beta2, options.eps, options.weight_decay}});
  }
  return result;
}

}  // namespace

AdamW::AdamW(NamedTensors parameters, const AdamWOptions& options)
    : AdamW(std::vector<ParameterGroup<AdamWOptions>>{{std::move(parameters), options}}) {}

AdamW::AdamW(const std::vector<ParameterGroup<AdamWOptions>>& groups)
    : MomentOptimizer("AdamW", as_moments(groups), WeightDecay::of_weight) {}

}  // namespace dtrain
