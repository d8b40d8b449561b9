#include "runtime/optim/stateful_optimizer.h"

#include <map>

#include "runtime/optim/state.h"

namespace dtrain {
namespace {

constexpr std::string_view kSteps = "step";

}  // namespace

void StatefulOptimizer::update() {
  for (std::size_t group = 0; group < groups().size(); ++group) update_group(group);
}

void StatefulOptimizer::advance(State& state, const Tensor& parameter, std::size_t group) {
  if (state.steps == 0) {
    for (std::size_t i = 0; i < quantities_.size(); ++i) {
      if (!quantities_[i].empty() && keeps(group, i))
        state.arrays[i] = Tensor::full_like(parameter, initial_value(group));
    }
  }
  ++state.steps;
  state.attempted = true;
}

void StatefulOptimizer::update_group(std::size_t group) {
  // One call on each devices for all parameters that have had equally many steps: usually all there are.
  std::map<std::int64_t, ForeachLists> slots_by_step;
  std::vector<Tensor> gradients;  // keeps a dense copy alive, where one is needed
  for (std::size_t i = groups()[group].begin; i < groups()[group].end; ++i) {
    const Tensor& parameter = parameters()[i].second;
    const Tensor gradient = parameter.grad();
    if (!gradient.defined()) continue;
    gradients.push_back(gradient.detach().contiguous());
    State& state = states_[i];
    advance(state, parameter, group);
    slots_by_step.try_emplace(state.steps, *this)
        .first->second.add(i, {parameter.view(), gradients.back().view(), view_or_none(state.arrays[0]),
                               view_or_none(state.arrays[1])});
    parameter.mark_modified();
  }
  for (const auto& [step, slots] : slots_by_step) {
    slots.for_each_device_group(
        [&, step = step](const DeviceGroup& devices, std::span<const OptimizerSlot> here) {
          run(group, step, devices, here);
        });
  }
}

// Each parameter that has state takes part in every step that is replayed.
void StatefulOptimizer::count_step() {
  for (State& state : states_) {
    if (state.steps == 0) continue;
    ++state.steps;
    state.attempted = true;
  }
}

Optimizer::NamedTensors StatefulOptimizer::named_state() const {
  NamedTensors named;
  const std::int64_t skipped = skipped_steps();
  for (std::size_t i = 0; i < states_.size(); ++i) {
    const auto& [name, parameter] = parameters()[i];
    const State& state = states_[i];
    const std::int64_t steps = state.steps - (state.attempted ? skipped : 0);
    if (steps == 0) continue;
    for (std::size_t a = 0; a < quantities_.size(); ++a) {
      if (!state.arrays[a].defined()) continue;
      named.emplace_back(name + "." + std::string(quantities_[a]), state.arrays[a]);
    }
    named.emplace_back(name + "." + std::string(kSteps),
                       Tensor::from_data({steps}, {1}, parameter.shared_device()));
  }
  return named;
}

StatefulOptimizer::State StatefulOptimizer::load_one(SavedState& saved, std::size_t index,
                                                     std::size_t group) const {
  const auto& [name, parameter] = parameters()[index];
  State state;
  std::size_t expected = 1, found = 0;
  std::string quantities;
  for (std::size_t a = 0; a < quantities_.size(); ++a) {
    if (quantities_[a].empty() || !keeps(group, a)) continue;
    state.arrays[a] = saved.take(name, quantities_[a], parameter);
    quantities += std::string(quantities_[a]) + ", ";
    ++expected;
    found += state.arrays[a].defined() ? 1 : 0;
  }
  const Tensor count = Tensor::zeros({1}, parameter.shared_device(), DType::i64);
  const Tensor steps = saved.take(name, kSteps, count);
  found += steps.defined() ? 1 : 0;
  if (found != 0 && found != expected) throw_incomplete_state(name, quantities + std::string(kSteps));
  if (steps.defined()) state.steps = steps.to_vector<std::int64_t>()[0];
  return state;
}

void StatefulOptimizer::load_state(const NamedTensors& named) {
  SavedState saved(named);
  std::vector<State> all;
  for (std::size_t group = 0; group < groups().size(); ++group) {
    for (std::size_t i = groups()[group].begin; i < groups()[group].end; ++i)
      all.push_back(load_one(saved, i, group));
  }
  saved.check_all_taken();
  states_ = std::move(all);
}

}  // namespace dtrain
