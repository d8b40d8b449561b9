// A parameter server as a process of a training job: what a program does that trains a task, where it was
// started to serve.
#pragma once

#include "cluster/detect/detect.h"
#include "runtime/base/environment.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "training/options/train_config.h"
#include "training/start/server_role.h"
#include "training/start/stop_signal.h"

namespace dtrain {

/// Serves the job's workers until all have gone. `config` is the workers' own; `role` has the server's
/// number. A stop signal is for the workers, who save a checkpoint before they go; it ends a server that has
/// none. Opens no data and builds no network: what there is to update, worker 0 brings. Throws PeerError when
/// no worker comes, and where the work was not done when the last one was lost.
ExitCode serve(const TrainConfig& config, const ServerRole& role, const Placement& placement,
               const Environment& environment, StopSignal& stop_signal, Log& log);

}  // namespace dtrain
