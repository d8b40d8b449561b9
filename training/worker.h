// A worker of a job, from its devices to the end of training: as a process, or as one of several threads.
#pragma once

#include "training/log/straggler_score.h"
#include "training/log/worker_log.h"
#include "training/options/train_config.h"
#include "training/start/peers.h"
#include "training/start/server_role.h"
#include "training/start/stop_signal.h"
#include "training/task.h"

namespace dtrain {

/// What all workers of a process train; borrowed.
struct WorkerJob {
  const Task& task;
  const Environment& environment;
  const Options& options;
  const TrainConfig& config;
  StopSignal& stop_signal;
  Duration straggler_window = StragglerScore::kWindow;  ///< TrainerEnvironment's
};

/// How many workers train: those of the job, or the threads of this process (--thread-workers). Throws
/// UsageError where both are several.
int worker_count(const Options& options, const ServerRole& role);

/// What starts each line on standard error: "dtrain: rank 1", or "dtrain" for the only one of `workers`.
std::string worker_name(int rank, int workers);

/// Trains as the worker that `placement` and `role` say. Throws every kind of Error.
ExitCode run_worker(const WorkerJob& job, const Placement& placement, const ServerRole& role, WorkerLog& log);

/// Trains as all workers of the config, each a thread of its own, and returns how the first ended. Where one
/// fails the others end too, and its error is thrown. `log` is the process' own, where `placement` has put
/// it.
ExitCode run_thread_workers(const WorkerJob& job, const Placement& placement, WorkerLog& log);

}  // namespace dtrain
