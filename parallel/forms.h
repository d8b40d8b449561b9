// The forms of parallelism by name: which schedule, sync and layout each is made of.
//
//     const auto strategy = make_data_parallel(context);
//     strategy->prepare({build, make_optimizer}, deadline);
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "parallel/parallel_model.h"
#include "parallel/placed/placed_network.h"
#include "parallel/schedule/pipeline.h"
#include "parallel/sync/reducer.h"
#include "parallel/sync/sharded/sharded_parameters.h"

namespace dtrain {

/// Every rank of `context` holds the whole network and computes its share of each batch; gradients are
/// averaged while backward runs (torch's DistributedDataParallel). `waits_inside`: steps wait for peers
/// while they compute (batch norm over all workers), so none can be recorded.
std::unique_ptr<ParallelModel> make_data_parallel(const StrategyContext& context, ReducerOptions options = {},
                                                  bool waits_inside = false,
                                                  OptimizerState state = OptimizerState::everywhere);

/// The same bits for any number of ranks (FixedTreeSync), of which `parts` is the most.
///
///     make_virtual_workers(context, 8);     // the weights of 1, 2, 3, … 8 ranks are the same bits
std::unique_ptr<ParallelModel> make_virtual_workers(const StrategyContext& context, int parts,
                                                    const BucketOptions& buckets = {},
                                                    OptimizerState state = OptimizerState::everywhere);

/// ZeRO (ShardedSync). Without `groups` all ranks have a part each.
std::unique_ptr<ParallelModel> make_sharded(const StrategyContext& context, const ShardOptions& options,
                                            const std::optional<ShardGroups>& groups = std::nullopt);

/// Every rank of `context` holds the whole network, passes run one after the other, and `sync` says how ranks
/// share what they learn: a sync that has no maker here.
std::unique_ptr<ParallelModel> make_with_sync(const StrategyContext& context, std::string_view name,
                                              std::unique_ptr<GradientSync> sync);

/// Parameters are averaged after every `sync_every` steps (LocalSgdSync).
std::unique_ptr<ParallelModel> make_local_sgd(const StrategyContext& context, std::int64_t sync_every);

/// The groups that a rank of a pipeline talks in; borrowed.
struct PipelineGroups {
  const PipelineLinks& links;  ///< of this pipeline; a ring where stages are interleaved
  Communicator& dp_group;      ///< the ranks that hold this stage
};

struct PipelineOptions {
  StageOptions stages = {};
  ReducerOptions reducer = {};  ///< of gradients among the copies
  /// What a stage's copies share out: the optimizer's state by whole parameters (OptimizerPartition),
  /// gradients and parameters by ranges (ShardedParameters), without `reducer`. The patience is the
  /// context's.
  std::optional<ShardOptions> shard = std::nullopt;
  /// Parts into which a batch is always cut: a copy's are its micro-batches, and the sums have the same bits
  /// for any number of copies (FixedTreeSync), without `reducer`. 0: micro-batches are as many as there are
  /// passes.
  int virtual_workers = 0;
};

/// Stages of a network on ranks (Pipeline); `context` is of all ranks. Throws UsageError for virtual workers
/// that are fewer than the copies, or beside several chunks or ranges.
std::unique_ptr<ParallelModel> make_pipeline(const StrategyContext& context, const PipelineGroups& groups,
                                             PipelineOptions options);

/// Stages of a network on devices of each process (DevicePipeline), by their names in `all`.
std::unique_ptr<ParallelModel> make_device_pipeline(const StrategyContext& context,
                                                    std::vector<std::string> devices, NamedDevices all,
                                                    const StageOptions& stages = {},
                                                    OptimizerState state = OptimizerState::everywhere);

/// Layers split over `group` (layers.h), which every batch goes to; `context` is of all ranks.
/// `among_copies` was made for the ranks that hold the same slices, or for stages.
std::unique_ptr<ParallelModel> make_tensor_parallel(const StrategyContext& context, const RankGroup& group,
                                                    std::unique_ptr<ParallelModel> among_copies);

}  // namespace dtrain
