// How workers share the work, as options say it.
#pragma once

#include "training/options/train_config.h"

namespace dtrain {

/// Fills in what `config` says of parallelism and devices beyond its flags, for a job of `world_size`
/// workers. Throws UsageError naming the option for what does not go together (check_combinations), and, with
/// the numbers, for what does not add up.
void read_parallelism(const Options& options, std::int64_t world_size, TrainConfig& config);

/// Workers along an axis of the mesh; 1 for an axis that it does not have.
int axis_size(const TrainConfig& config, std::string_view name);

/// Whether --shard optimizer deals whole parameters out (decision 043) instead of cutting each into ranges;
/// after read_parallelism().
bool partitions_optimizer(const TrainConfig& config);

/// Whether the devices of a worker each have the whole network.
bool has_replicas(const TrainConfig& config);

/// Into how many shares a batch is cut: workers, parts, or groups of workers that share a network.
std::int64_t shares_of(const TrainConfig& config, std::int64_t world_size);

/// Micro-batches of a step: --accumulate, or the micro-batches of a pipeline.
std::int64_t passes_of(const TrainConfig& config);

/// Throws UsageError where a worker has more devices than samples or stages, when the batch is known.
void check_batch(const TrainConfig& config);

}  // namespace dtrain
