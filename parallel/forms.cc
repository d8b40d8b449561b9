#include "parallel/forms.h"

#include <fmt/format.h>

#include "parallel/schedule/accumulation.h"
#include "parallel/schedule/device_pipeline.h"
#include "parallel/sync/all_reduce_sync.h"
#include "parallel/sync/fixed_tree_sync.h"
#include "parallel/sync/local_sgd_sync.h"
#include "parallel/sync/sharded/sharded_sync.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

std::unique_ptr<ParallelModel> of_whole_networks(const StrategyContext& context, std::string_view name,
                                                 std::unique_ptr<GradientSync> sync,
                                                 bool waits_inside = false) {
  return std::make_unique<ParallelModel>(context, name, std::make_unique<Accumulation>(context, waits_inside),
                                         std::move(sync));
}

OptimizerState state_of(const PipelineOptions& options) {
  const bool partitions = options.shard && options.shard->stage == ShardStage::optimizer;
  return partitions ? OptimizerState::partitioned : OptimizerState::everywhere;
}

/// How the copies of a stage share it. `context` is of them.
std::unique_ptr<GradientSync> sync_of(const StrategyContext& context, const PipelineOptions& options) {
  const bool cuts = options.shard && options.shard->stage != ShardStage::optimizer;
  if (const int parts = options.virtual_workers; parts > 0) {
    if (parts < context.communicator.size() || options.stages.chunks > 1 || cuts) {
      throw UsageError(
          fmt::format("pipeline: expected at least one part for each of {} copies, one chunk a stage and "
                      "whole gradients with virtual workers, got {} parts, {} chunks{}",
                      context.communicator.size(), parts, options.stages.chunks, cuts ? " and ranges" : ""));
    }
    return std::make_unique<FixedTreeSync>(context, parts, BucketOptions{}, state_of(options));
  }
  if (cuts) return std::make_unique<ShardedSync>(context, *options.shard);
  return std::make_unique<AllReduceSync>(context, options.reducer, state_of(options));
}

}  // namespace

std::unique_ptr<ParallelModel> make_data_parallel(const StrategyContext& context, ReducerOptions options,
                                                  bool waits_inside, OptimizerState state) {
  return of_whole_networks(context, "data parallel",
                           std::make_unique<AllReduceSync>(context, std::move(options), state), waits_inside);
}

std::unique_ptr<ParallelModel> make_virtual_workers(const StrategyContext& context, int parts,
                                                    const BucketOptions& buckets, OptimizerState state) {
  return of_whole_networks(context, "virtual workers",
                           std::make_unique<FixedTreeSync>(context, parts, buckets, state));
}

std::unique_ptr<ParallelModel> make_sharded(const StrategyContext& context, const ShardOptions& options,
                                            const std::optional<ShardGroups>& groups) {
  return of_whole_networks(context, "sharded data parallel",
                           std::make_unique<ShardedSync>(context, options, groups));
}

std::unique_ptr<ParallelModel> make_with_sync(const StrategyContext& context, std::string_view name,
                                              std::unique_ptr<GradientSync> sync) {
  return of_whole_networks(context, name, std::move(sync));
}

std::unique_ptr<ParallelModel> make_local_sgd(const StrategyContext& context, std::int64_t sync_every) {
  return of_whole_networks(context, "local SGD", std::make_unique<LocalSgdSync>(context, sync_every));
}

std::unique_ptr<ParallelModel> make_pipeline(const StrategyContext& context, const PipelineGroups& groups,
                                             PipelineOptions options) {
  const StrategyContext copies{groups.dp_group, context.device, context.patience, context.timer};
  return std::make_unique<ParallelModel>(context, "pipeline",
                                         std::make_unique<Pipeline>(context, groups.links, options.stages),
                                         sync_of(copies, options));
}

std::unique_ptr<ParallelModel> make_device_pipeline(const StrategyContext& context,
                                                    std::vector<std::string> devices, NamedDevices all,
                                                    const StageOptions& stages, OptimizerState state) {
  return std::make_unique<ParallelModel>(
      context, "pipeline",
      std::make_unique<DevicePipeline>(context, std::move(devices), std::move(all), stages),
      all_reduce_afterwards(context, state));
}

std::unique_ptr<ParallelModel> make_tensor_parallel(const StrategyContext& context, const RankGroup& group,
                                                    std::unique_ptr<ParallelModel> among_copies) {
  among_copies->split_over(context.communicator, group);
  return among_copies;
}

}  // namespace dtrain
