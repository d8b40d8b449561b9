// What a trainer works with, and its helpers with it.
#pragma once

#include <memory>

#include "parallel/strategy.h"
#include "runtime/base/environment.h"
#include "runtime/base/files/worker_status.h"
#include "runtime/base/files/write_permit.h"
#include "runtime/base/options.h"
#include "training/log/straggler_score.h"
#include "training/log/tracer.h"
#include "training/log/worker_log.h"
#include "training/start/stop_signal.h"
#include "training/task.h"

namespace dtrain {

/// What a trainer borrows; all of it outlives the trainer.
struct TrainerEnvironment {
  const Task& task;
  Strategy& strategy;
  Communicator& communicator;  ///< of all workers
  std::shared_ptr<Device> device;
  const Options& options;
  const Environment& environment;
  const StopSignal& stop_signal;
  WorkerLog& log;
  Tracer& tracer;
  StepClock& clock;                  ///< the strategy's too
  WritePermit permit = {};           ///< without it nothing of the run is written, and training ends
  Communicator* dp_group = nullptr;  ///< the workers that hold the same shards of the network; null: all
  StatusReporter* status = nullptr;  ///< where the launcher sees what this worker does; null: nowhere
  /// How long a rank is slower than the others before it is called a straggler.
  Duration straggler_window = StragglerScore::kWindow;
};

}  // namespace dtrain
