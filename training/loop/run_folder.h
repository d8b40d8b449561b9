// Which folder a run writes to, who may, and which of its checkpoints it resumes from.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "runtime/base/environment.h"
#include "runtime/base/log.h"
#include "runtime/checkpoint/checkpoint_store.h"
#include "runtime/metrics/run_directory.h"
#include "training/options/train_config.h"

namespace dtrain {

/// When the launcher, or what else started the job, began: nanoseconds since 1970.
inline constexpr const char* kLaunchTimeVariable = "DTRAIN_LAUNCH_TIME_NS";

/// The folder of this run: --run-dir, or runs/<time>-<model>, where <time> is when the launcher started, so
/// that a group that is started again finds its run. Rank 0 only.
std::filesystem::path choose_run_dir(const TrainConfig& config, const Environment& environment);

/// Takes the lock of `run` before anything in it is touched, or read to resume from: its last writer may
/// still be busy. `permit`: without it the run's checkpoints are not written. Rank 0 only. Throws as
/// CheckpointStore::begin_writing, naming --run-dir.
std::unique_ptr<CheckpointStore> lock_run(const TrainConfig& config, const RunDirectory& run,
                                          const WritePermit& permit, Log& log);

/// What --resume asks for: the checkpoint to resume from, verified and without an objection by `unusable`, or
/// nothing for a fresh start. Rank 0 only. Throws UsageError when `never` meets checkpoints or the checkpoint
/// is of another configuration, DataError when none of those there can be used, SystemError when one that may
/// be good cannot be read.
std::optional<Checkpoint> find_checkpoint(const TrainConfig& config, const RunDirectory& run,
                                          const CheckpointTest& unusable, Log& log);

}  // namespace dtrain
