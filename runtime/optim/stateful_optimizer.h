// What optimizers share whose rule depends on how many steps a parameter has had.
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "runtime/optim/optimizer.h"

namespace dtrain {

class SavedState;

/// State of each parameter that has had a step: an array or two of its shape, "<parameter>.<quantity>", and
/// its count, "<parameter>.step" (i64 [1]).
class StatefulOptimizer : public Optimizer {
 public:
  NamedTensors named_state() const override;
  void load_state(const NamedTensors& state) override;

 protected:
  /// What the arrays are called, in the order of OptimizerSlot's; an empty name: there is none there.
  using Quantities = std::array<std::string_view, 2>;

  template <class Options>
  StatefulOptimizer(const std::vector<ParameterGroup<Options>>& groups, const Quantities& quantities)
      : Optimizer(groups), quantities_(quantities), states_(parameters().size()) {}

  void update() override;
  void count_step() override;

  /// Whether a group's parameters have the array number `quantity` at all.
  virtual bool keeps(std::size_t /*group*/, std::size_t /*quantity*/) const { return true; }
  /// What the arrays of a group's parameters are filled with before their first step.
  virtual double initial_value(std::size_t /*group*/) const { return 0; }
  /// Runs the rule on parameters of a group, all on `devices`, for which this is step `step`, counted from 1.
  virtual void run(std::size_t group, std::int64_t step, const DeviceGroup& devices,
                   std::span<const OptimizerSlot> slots) = 0;

 private:
  struct State {
    std::array<Tensor, 2> arrays;  ///< undefined until the first step
    std::int64_t steps = 0;        ///< those that the gate held back included
    bool attempted = false;        ///< since construction: such steps may be among them
  };

  void update_group(std::size_t group);
  /// What was saved of the parameter `index`, which is one of `group`.
  State load_one(SavedState& saved, std::size_t index, std::size_t group) const;
  /// The next step of a parameter's state.
  void advance(State& state, const Tensor& parameter, std::size_t group);

  Quantities quantities_;
  std::vector<State> states_;
};

}  // namespace dtrain
