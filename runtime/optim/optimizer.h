// Optimizer: updates parameters from their gradients, one kernel call for each group of them, with named
// state for checkpoints. Each kind follows its namesake in torch.optim to the letter.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/optim/parameter_groups.h"

namespace dtrain {

/// Groups of named parameters and the rule that moves them. Parameters without a gradient (frozen, or not
/// used since zero_grad()) are left alone, as in PyTorch: no weight decay, no momentum, no step counted. A
/// group has options and a learning rate of its own; an optimizer made from parameters and options has one
/// group. State goes by the parameters' names, so that a checkpoint fits whatever the groups. Parameters may
/// be on several devices: each is updated where it is, with its state beside it.
class Optimizer {
 public:
  using NamedTensors = dtrain::NamedTensors;

  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Applies one update and counts it. Gradients are read, not changed.
  void step();

  // ---- a step() that a device records once and replays (Device::record)
  /// The next step() is the one that is recorded. The first steps make state and must be past. Throws
  /// UsageError before them, and for parameters on several devices: a recording is of one.
  void begin_recording();
  void end_recording() noexcept { recording_ = false; }
  /// Before each run of the recorded step: hands it the learning rates and the count. Queues device work.
  void prepare_replay();
  /// Counts a step that happened by replaying. The first run is the step() that was recorded and counted
  /// then.
  void count_replay();

  /// Drops every parameter's gradient.
  void zero_grad();
  /// Those of all groups, one group after the other.
  const NamedTensors& parameters() const noexcept { return parameters_; }
  /// Every parameter's gradient, in that order; undefined where there is none.
  std::vector<Tensor> gradients() const;

  // ---- learning rates. `group` counts from 0 in the order given; throws UsageError when there is none such
  std::size_t group_count() const noexcept { return groups_.size(); }
  double lr(std::size_t group = 0) const { return group_at(group).lr; }
  /// The rate that the group was made with: what a schedule starts from (see set_lr in lr_schedule.h).
  double base_lr(std::size_t group = 0) const { return group_at(group).base_lr; }
  /// Throws UsageError when negative or not finite.
  void set_lr(std::size_t group, double lr);
  /// The same for all groups.
  void set_lr(double lr);

  /// From now on a step is skipped on the device when `skip` (float32 [1]) is not 0; of float32 [2], the
  /// second becomes 1 in a step that writes a number that is not finite to a parameter or to its state (as
  /// long as the optimizer's rule does so). `skipped` (int64 [1]) counts the steps skipped since this call,
  /// which comes before the first step; undefined where no step follows one that was skipped. Both are on one
  /// device, any; others of the parameters get a copy for each step. See UpdateGuard, GradScaler.
  void set_gate(const Tensor& skip, const Tensor& skipped = {});

  /// Everything but the parameters that decides the next step: "<parameter>.<quantity>" → tensor (sharing
  /// memory with the optimizer), plus the step counts. Only what exists yet; in parameter order.
  virtual NamedTensors named_state() const = 0;
  /// Takes over (by copy) what named_state() gave. Throws UsageError for unknown names, wrong shapes or an
  /// incomplete set; nothing is changed then.
  virtual void load_state(const NamedTensors& state) = 0;

 protected:
  /// A group's stretch of parameters().
  struct Group {
    std::size_t begin = 0, end = 0;
    double base_lr = 0, lr = 0;
  };
  /// Where a kernel call updates parameters: a device, or all CPUs, whose kernels share the host's memory.
  struct DeviceGroup {
    std::shared_ptr<Device> device;  ///< of its first parameter
    Tensor skip, skipped;            ///< the gate, here; undefined without one

    Kernels& kernels() const { return device->kernels(); }
    StepGate gate() const { return {view_or_none(skip), view_or_none(skipped)}; }
  };
  /// What is to be updated in a kernel call on each device group.
  class ForeachLists {
   public:
    explicit ForeachLists(const Optimizer& optimizer)
        : optimizer_(&optimizer), by_device_(optimizer.device_groups_.size()) {}
    /// `parameter` counts those of parameters(), whose the slot is.
    void add(std::size_t parameter, const OptimizerSlot& slot) {
      by_device_[optimizer_->device_group_of_[parameter]].push_back(slot);
    }
    /// Calls `apply(const DeviceGroup&, std::span<const OptimizerSlot>)` for device groups that have any.
    template <class Apply>
    void for_each_device_group(Apply apply) const {
      for (std::size_t i = 0; i < by_device_.size(); ++i) {
        if (!by_device_[i].empty()) apply(optimizer_->device_groups_[i], std::span(by_device_[i]));
      }
    }

   private:
    const Optimizer* optimizer_;
    std::vector<std::vector<OptimizerSlot>> by_device_;
  };

  /// Throws UsageError when there is no group, a group is empty, a name is used twice, or a tensor is no leaf
  /// or not dense, and for a rate that set_lr() refuses.
  template <class Options>
  explicit Optimizer(const std::vector<ParameterGroup<Options>>& groups) {
    for (const auto& group : groups) add_group(group.parameters, group.options.lr);
    check_parameters();
    find_device_groups();
  }

  const std::vector<Group>& groups() const noexcept { return groups_; }
  /// Updates all groups and counts, with each device group's gate and changes().
  virtual void update() = 0;
  /// Counts a step as update() does.
  virtual void count_step() = 0;
  StepChanges changes(std::size_t group) const;
  /// Steps that the gate held back. Waits for the device.
  std::int64_t skipped_steps() const;

 private:
  void add_group(const NamedTensors& parameters, double lr);
  void check_parameters() const;
  void find_device_groups();
  /// Where parameters have moved since (Module::to): finds the groups anew. Throws UsageError where there is
  /// state on the devices of before.
  void follow_parameters();
  /// Copies the gate to device groups that have none of their own, and what they noted back.
  void hand_out_gate();
  void gather_gate();
  const Group& group_at(std::size_t index) const;

  NamedTensors parameters_;
  std::vector<Group> groups_;
  std::vector<DeviceGroup> device_groups_;
  std::vector<std::size_t> device_group_of_;  ///< of each parameter
  Tensor skip_, skipped_;                     ///< undefined without a gate
  bool recording_ = false;
  Tensor changes_;                              ///< a row a group; undefined before the first recording
  std::int64_t steps_ = 0, recorded_step_ = 0;  ///< since construction; the recorded one's number
};

/// Makes the optimizer of whatever parameters a strategy lets this rank hold: all of them, or parts that keep
/// their parameter's name but not its shape. So choose groups by name (see names_of_vectors).
using OptimizerFactory = std::function<std::unique_ptr<Optimizer>(const NamedTensors& parameters)>;

}  // namespace dtrain
