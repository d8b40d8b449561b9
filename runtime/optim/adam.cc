#include "runtime/optim/adam.h"

#include <map>

#include "runtime/optim/option_checks.h"
#include "runtime/optim/state.h"

namespace dtrain {
namespace {

constexpr std::string_view kMean = "exp_avg", kVariance = "exp_avg_sq", kSteps = "step";

void check_options(std::string_view name, const AdamOptions& options) {
  require_option(options.beta1 >= 0 && options.beta1 < 1, name, "beta1", "in [0, 1)", options.beta1);
  require_option(options.beta2 >= 0 && options.beta2 < 1, name, "beta2", "in [0, 1)", options.beta2);
  require_not_negative(name, "eps", options.eps);
  require_not_negative(name, "weight_decay", options.weight_decay);
}

}  // namespace

MomentOptimizer::MomentOptimizer(std::string_view name,
                                 const std::vector<ParameterGroup<AdamOptions>>& groups, WeightDecay decay)
    : Optimizer(groups), decay_(decay), moments_(parameters().size()) {
  for (const auto& group : groups) {
    check_options(name, group.options);
    options_.push_back(group.options);
  }
}

void MomentOptimizer::update() {
  for (std::size_t group = 0; group < options_.size(); ++group) update_group(group);
}

void MomentOptimizer::update_group(std::size_t group) {
  // One call for all parameters that have had equally many steps: usually all there are.
  std::map<std::int64_t, std::vector<OptimizerSlot>> slots_by_step;
  std::vector<Tensor> gradients;  // keeps a dense copy alive, where one is needed
  for (std::size_t i = groups()[group].begin; i < groups()[group].end; ++i) {
    const Tensor& parameter = parameters()[i].second;
    const Tensor gradient = parameter.grad();
    if (!gradient.defined()) continue;
    gradients.push_back(gradient.detach().contiguous());
    Moments& moments = moments_[i];
    if (moments.steps == 0) {
      moments.mean = Tensor::zeros(parameter.shape(), parameter.shared_device(), parameter.dtype());
      moments.variance = Tensor::zeros(parameter.shape(), parameter.shared_device(), parameter.dtype());
    }
    moments.attempted = true;
    slots_by_step[++moments.steps].push_back(
        {parameter.view(), gradients.back().view(), moments.mean.view(), moments.variance.view()});
    parameter.mark_modified();
  }
  const AdamOptions& options = options_[group];
  for (const auto& [step, slots] : slots_by_step) {
    kernels().adamw(slots, {lr(group), options.beta1, options.beta2, options.eps, options.weight_decay, step,
                            gate(), changes(group), decay_ == WeightDecay::of_weight});
  }
}

// Whoever has moments takes part in every step that is replayed.
void MomentOptimizer::count_step() {
  for (Moments& moments : moments_) {
    if (moments.steps == 0) continue;
    ++moments.steps;
    moments.attempted = true;
  }
}

Optimizer::NamedTensors MomentOptimizer::named_state() const {
  NamedTensors state;
  const std::int64_t skipped = skipped_steps();
  for (std::size_t i = 0; i < moments_.size(); ++i) {
    const auto& [name, parameter] = parameters()[i];
    const Moments& moments = moments_[i];
    const std::int64_t steps = moments.steps - (moments.attempted ? skipped : 0);
    if (steps == 0) continue;
    state.emplace_back(name + "." + std::string(kMean), moments.mean);
    state.emplace_back(name + "." + std::string(kVariance), moments.variance);
    state.emplace_back(name + "." + std::string(kSteps),
                       Tensor::from_data({steps}, {1}, parameter.shared_device()));
  }
  return state;
}

void MomentOptimizer::load_state(const NamedTensors& state) {
  SavedState saved(state);
  std::vector<Moments> all;
  for (const auto& [name, parameter] : parameters()) {
    const Tensor count = Tensor::zeros({1}, parameter.shared_device(), DType::i64);
    Moments moments{saved.take(name, kMean, parameter), saved.take(name, kVariance, parameter), 0, false};
    const Tensor steps = saved.take(name, kSteps, count);
    const bool any = moments.mean.defined() || moments.variance.defined() || steps.defined();
    const bool complete = moments.mean.defined() && moments.variance.defined() && steps.defined();
    if (any && !complete) throw_incomplete_state(name, "exp_avg, exp_avg_sq and step");
    if (complete) moments.steps = steps.to_vector<std::int64_t>()[0];
    all.push_back(std::move(moments));
  }
  saved.check_all_taken();
  moments_ = std::move(all);
}

Adam::Adam(NamedTensors parameters, const AdamOptions& options)
    : Adam(std::vector<ParameterGroup<AdamOptions>>{{std::move(parameters), options}}) {}

Adam::Adam(const std::vector<ParameterGroup<AdamOptions>>& groups)
    : MomentOptimizer("Adam", groups, WeightDecay::of_gradient) {}

}  // namespace dtrain
