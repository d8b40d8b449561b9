#include "runtime/optim/adagrad.h"

#include <map>

#include "runtime/optim/option_checks.h"
#include "runtime/optim/state.h"

namespace dtrain {
namespace {

constexpr std::string_view kSum = "sum", kSteps = "step";

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
    : Optimizer(groups), totals_(parameters().size()) {
  for (const auto& group : groups) {
    check_options(group.options);
    options_.push_back(group.options);
  }
}

void Adagrad::update() {
  for (std::size_t group = 0; group < options_.size(); ++group) update_group(group);
}

void Adagrad::update_group(std::size_t group) {
  const AdagradOptions& options = options_[group];
  // One call for all parameters that have had equally many steps: usually all there are.
  std::map<std::int64_t, std::vector<OptimizerSlot>> slots_by_step;
  std::vector<Tensor> gradients;  // keeps a dense copy alive, where one is needed
  for (std::size_t i = groups()[group].begin; i < groups()[group].end; ++i) {
    const Tensor& parameter = parameters()[i].second;
    const Tensor gradient = parameter.grad();
    if (!gradient.defined()) continue;
    gradients.push_back(gradient.detach().contiguous());
    Total& total = totals_[i];
    if (total.steps == 0) total.sum = Tensor::full_like(parameter, options.initial_accumulator_value);
    total.attempted = true;
    slots_by_step[++total.steps].push_back(
        {parameter.view(), gradients.back().view(), View{}, total.sum.view()});
    parameter.mark_modified();
  }
  for (const auto& [step, slots] : slots_by_step) {
    kernels().adagrad(slots, {lr(group), options.lr_decay, options.weight_decay, options.eps, step, gate(),
                              changes(group)});
  }
}

// Whoever has a sum takes part in every step that is replayed.
void Adagrad::count_step() {
  for (Total& total : totals_) {
    if (total.steps == 0) continue;
    ++total.steps;
    total.attempted = true;
  }
}

Optimizer::NamedTensors Adagrad::named_state() const {
  NamedTensors state;
  const std::int64_t skipped = skipped_steps();
  for (std::size_t i = 0; i < totals_.size(); ++i) {
    const auto& [name, parameter] = parameters()[i];
    const Total& total = totals_[i];
    const std::int64_t steps = total.steps - (total.attempted ? skipped : 0);
    if (steps == 0) continue;
    state.emplace_back(name + "." + std::string(kSum), total.sum);
    state.emplace_back(name + "." + std::string(kSteps),
                       Tensor::from_data({steps}, {1}, parameter.shared_device()));
  }
  return state;
}

void Adagrad::load_state(const NamedTensors& state) {
  SavedState saved(state);
  std::vector<Total> all;
  for (const auto& [name, parameter] : parameters()) {
    const Tensor count = Tensor::zeros({1}, parameter.shared_device(), DType::i64);
    Total total{saved.take(name, kSum, parameter), 0, false};
    const Tensor steps = saved.take(name, kSteps, count);
    if (total.sum.defined() != steps.defined()) throw_incomplete_state(name, "sum and step");
    if (steps.defined()) total.steps = steps.to_vector<std::int64_t>()[0];
    all.push_back(std::move(total));
  }
  saved.check_all_taken();
  totals_ = std::move(all);
}

}  // namespace dtrain
