// Optimizer: updates parameters from their gradients, all in one kernel call, with named state for
// checkpoints. Sgd and AdamW follow torch.optim to the letter.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runtime/tensor/tensor.h"

namespace dtrain {

/// A set of named parameters and the rule that moves them. Parameters without a gradient are left alone, as
/// in PyTorch.
class Optimizer {
 public:
  using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Applies one update and counts it. Gradients are read, not changed.
  void step();

  // ---- a step() that a device records once and replays (Device::record)
  /// The next step() is the one that is recorded. The first steps make state and must be past.
  void begin_recording();
  void end_recording() noexcept { recording_ = false; }
  /// Before each run of the recorded step: hands it the learning rate and the count. Queues device work.
  void prepare_replay();
  /// Counts a step that happened by replaying. The first run is the step() that was recorded and counted
  /// then.
  void count_replay();

  /// Drops every parameter's gradient.
  void zero_grad();
  /// Every parameter's gradient, in order; undefined where there is none.
  std::vector<Tensor> gradients() const;

  double lr() const noexcept { return lr_; }
  /// Throws UsageError when negative or not finite.
  void set_lr(double lr);

  /// From now on a step is skipped on the device when `skip` (float32 [1]) is not 0; `skipped` (int64 [1])
  /// counts the steps skipped since this call, which comes before the first step. See GradScaler.
  void set_gate(const Tensor& skip, const Tensor& skipped);

  /// Everything but the parameters that decides the next step: "<parameter>.<quantity>" → tensor (sharing
  /// memory with the optimizer), plus the step counts. Only what exists yet; in parameter order.
  virtual NamedTensors named_state() const = 0;
  /// Takes over (by copy) what named_state() gave. Throws UsageError for unknown names, wrong shapes or an
  /// incomplete set; nothing is changed then.
  virtual void load_state(const NamedTensors& state) = 0;

 protected:
  /// Throws UsageError when empty, when a name is used twice, or a tensor needs no gradient or is not dense.
  Optimizer(NamedTensors parameters, double lr);
  const NamedTensors& parameters() const noexcept { return parameters_; }
  /// Updates and counts, with gate() and changes().
  virtual void update() = 0;
  /// Counts a step as update() does.
  virtual void count_step() = 0;
  StepGate gate() const;
  StepChanges changes() const;
  /// Steps that the gate held back. Waits for the device.
  std::int64_t skipped_steps() const;

 private:
  NamedTensors parameters_;
  double lr_;
  Tensor skip_, skipped_;  ///< undefined without a gate
  bool recording_ = false;
  Tensor changes_;                              ///< undefined before the first recording
  std::int64_t steps_ = 0, recorded_step_ = 0;  ///< since construction; the recorded one's number
};

}  // namespace dtrain
