// A training step that can be taken apart: whole, without its communication, or its communication alone. The
// step is the engine's own; the batch is always the same one and the learning rate 0, so that every step does
// equal work on equal numbers.
#pragma once

#include <memory>

#include "parallel/forms.h"
#include "runtime/base/log.h"
#include "training/engine/engine.h"
#include "training/options/train_config.h"

namespace dtrain {

/// One worker's; every rank constructs it and calls it alike.
class StepRunner {
 public:
  /// Opens the task's data and takes one batch of it, builds the network and shares rank 0's weights. `task`,
  /// `communicator` and `spans` are borrowed; without spans (null) nothing is recorded, with them each step
  /// leaves the phases "forward", "backward", "communication" and "optimizer". Throws UsageError, DataError,
  /// PeerError.
  StepRunner(const TrainConfig& config, const Task& task, Communicator& communicator,
             const std::shared_ptr<Device>& device, Log& log, SpanRecorder* spans = nullptr);

  /// Forward, backward with all-reduces beside it, the wait for them, optimizer. Throws PeerError.
  void step();
  /// The same, but gradients stay this rank's.
  void compute();
  /// What a step exchanges, with nothing beside it. Throws PeerError.
  void communicate();

  std::int64_t parameter_count() { return strategy_->module().parameter_count(); }

 private:
  Batch load_batch(const std::shared_ptr<const Source>& source);
  StepPlan plan();

  const TrainConfig config_;
  Communicator& communicator_;
  const std::shared_ptr<Device> device_;
  StepClock clock_;
  std::unique_ptr<Strategy> strategy_;
  Engine engine_;
  std::optional<Batch> batch_;
  ParameterKinds kinds_;
  std::int64_t steps_ = 0;
};

}  // namespace dtrain
