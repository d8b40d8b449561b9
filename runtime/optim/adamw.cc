#include "runtime/optim/adamw.h"

#include <cmath>
#include <map>

#include "runtime/base/error.h"
#include "runtime/optim/state.h"

namespace dtrain {
namespace {

constexpr std::string_view kMean = "exp_avg", kVariance = "exp_avg_sq", kSteps = "step";

void check_options(const AdamWOptions& options) {
  const auto require = [](bool valid, std::string_view name, std::string_view range, double value) {
    if (valid) return;
    throw UsageError("AdamW: " + std::string(name) + " must be " + std::string(range) + ", got " +
                     std::to_string(value));
  };
  require(options.beta1 >= 0 && options.beta1 < 1, "beta1", "in [0, 1)", options.beta1);
  require(options.beta2 >= 0 && options.beta2 < 1, "beta2", "in [0, 1)", options.beta2);
  require(options.eps >= 0 && std::isfinite(options.eps), "eps", "finite and at least 0", options.eps);
  require(options.weight_decay >= 0 && std::isfinite(options.weight_decay), "weight_decay",
          "finite and at least 0", options.weight_decay);
}

}  // namespace

AdamW::AdamW(NamedTensors parameters, const AdamWOptions& options)
    : AdamW(std::vector<ParameterGroup<AdamWOptions>>{{std::move(parameters), options}}) {}

AdamW::AdamW(const std::vector<ParameterGroup<AdamWOptions>>& groups)
    : Optimizer(groups), moments_(parameters().size()) {
  for (const auto& group : groups) {
    check_options(group.options);
    options_.push_back(group.options);
  }
}

void AdamW::update() {
  for (std::size_t group = 0; group < options_.size(); ++group) update_group(group);
}

void AdamW::update_group(std::size_t group) {
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
  const AdamWOptions& options = options_[group];
  for (const auto& [step, slots] : slots_by_step) {
    kernels().adamw(slots, {lr(group), options.beta1, options.beta2, options.eps, options.weight_decay, step,
                            gate(), changes(group)});
  }
}

// Whoever has moments takes part in every step that is replayed.
void AdamW::count_step() {
  for (Moments& moments : moments_) {
    if (moments.steps == 0) continue;
    ++moments.steps;
    moments.attempted = true;
  }
}

Optimizer::NamedTensors AdamW::named_state() const {
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

void AdamW::load_state(const NamedTensors& state) {
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

}  // namespace dtrain
