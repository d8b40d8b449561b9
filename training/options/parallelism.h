// How workers share the work, as options say it, and which of them do not go together.
#pragma once

#include "training/options/train_config.h"

namespace dtrain {

/// Fills in what `recipe` says of parallelism, for a job of `world_size` workers. Throws UsageError naming
/// the option, with the numbers, for what cannot be.
void read_parallelism(const Options& options, std::int64_t world_size, TrainConfig& recipe);

/// Whether --shard optimizer deals whole parameters out (decision 043) instead of cutting each into ranges;
/// after read_parallelism().
bool deals_optimizer(const TrainConfig& recipe);

/// --thread-workers, at least 1. Throws UsageError.
int thread_workers(const Options& options);

/// Into how many shares a batch is cut: workers, parts, or groups of workers that share a network.
std::int64_t shares_of(const TrainConfig& recipe, std::int64_t world_size);

/// Passes of a step: --accumulate, or the micro-batches of a pipeline.
std::int64_t passes_of(const Options& options, const TrainConfig& recipe);

/// Throws UsageError for an optimizer that the form of parallelism cannot have. Steps that cannot be recorded
/// are not.
void check_optimizer(const Options& options, TrainConfig& recipe);

/// The same for the devices of a worker, when the batch is known.
void read_devices(const Options& options, TrainConfig& recipe);

/// Throws UsageError for what several workers of one process cannot have; their device is the CPU.
void check_beside_thread_workers(const Options& options, TrainConfig& recipe);

}  // namespace dtrain
