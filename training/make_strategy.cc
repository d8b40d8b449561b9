#include "training/make_strategy.h"

#include <fmt/format.h>

#include <algorithm>

#include "parallel/forms.h"
#include "parallel/phased_strategy.h"
#include "parallel/placed/multi_device_strategy.h"
#include "parallel/placed/placed_strategy.h"
#include "parallel/server/server_strategy.h"
#include "parallel/sync/sharded/diloco_sync.h"
#include "runtime/base/error.h"
#include "runtime/base/options.h"
#include "runtime/device/cuda/cuda_device.h"
#include "training/options/parallelism.h"

namespace dtrain {
namespace {

std::unique_ptr<ParallelModel> make_sharded(const TrainConfig& config, const StrategyContext& context,
                                            const WorkerMesh* mesh) {
  std::optional<ShardGroups> groups;
  if (mesh != nullptr) groups.emplace(ShardGroups{mesh->mesh.group("shard"), &mesh->mesh.group("replicate")});
  const ShardOptions options{.stage = config.shard.value_or(ShardStage::optimizer)};
  if (!config.outer_lr) return make_sharded(context, options, groups);
  const OuterOptions outer{config.sync_every, *config.outer_lr, config.outer_momentum};
  return make_with_sync(context, "DiLoCo",
                        std::make_unique<DilocoSync>(
                            context, options, groups.value_or(ShardGroups{context.communicator}), outer));
}

OptimizerState optimizer_state(const TrainConfig& config) {
  return partitions_optimizer(config) ? OptimizerState::partitioned : OptimizerState::everywhere;
}

std::unique_ptr<ParallelModel> make_virtual_workers(const TrainConfig& config,
                                                    const StrategyContext& context) {
  return make_virtual_workers(context, static_cast<int>(config.virtual_workers), BucketOptions{},
                              optimizer_state(config));
}

std::unique_ptr<ParallelModel> strategy_between_workers(const TrainConfig& config,
                                                        const StrategyContext& context,
                                                        const WorkerMesh* mesh) {
  if (config.virtual_workers > 0) return make_virtual_workers(config, context);
  const bool cuts = config.shard && !partitions_optimizer(config);
  if (cuts || config.outer_lr) return make_sharded(config, context, mesh);
  if (config.sync_every > 0) return make_local_sgd(context, config.sync_every);
  // Compressed steps are not all alike, so they are not recorded either.
  const bool compresses = config.compress.kind != Compression::Kind::none;
  return make_data_parallel(context, ReducerOptions{.exchange = exchange_for(config.compress, config.seed)},
                            config.sync_batch_norm || compresses, optimizer_state(config));
}

/// The axes of workers that have a part each; none where all have.
std::vector<MeshAxis> shard_axes(const TrainConfig& config, const Communicator& world, int local_rank,
                                 int local_size) {
  const bool each_alone = config.outer_lr && !config.shard;
  if (each_alone) return {{"replicate", kAutoSize}, {"shard", 1}};
  if (config.shard_group == 0) return {};
  if (config.shard_group != kShardNode) return {{"replicate", kAutoSize}, {"shard", config.shard_group}};
  if (world.size() % local_size != 0 || world.rank() % local_size != local_rank) {
    throw UsageError(
        fmt::format("--shard-group node: expected the same number of workers on every node, with consecutive "
                    "ranks, got {} of {} workers here, rank {} as number {}; give a number",
                    local_size, world.size(), world.rank(), local_rank));
  }
  return {{"replicate", kAutoSize}, {"shard", local_size}};
}

constexpr std::string_view kCuda = "cuda:";

/// N of "cuda:N"; -1 for a CPU.
int gpu_index(const std::string& name) {
  return name.starts_with(kCuda) ? static_cast<int>(parse_integer(name.substr(kCuda.size())).value_or(-1))
                                 : -1;
}

}  // namespace

std::vector<std::string> own_gpus(const std::vector<std::string>& names, int local_rank, int local_size,
                                  int visible) {
  int used = 0;
  for (const std::string& name : names) used = std::max(used, gpu_index(name) + 1);
  const int each = visible / std::max(local_size, 1);
  if (used == 0 || each < used) return names;
  std::vector<std::string> own;
  for (const std::string& name : names)
    own.push_back(fmt::format("{}{}", kCuda, local_rank * each + gpu_index(name)));
  return own;
}

WorkerDevices make_devices(const TrainConfig& config, int local_rank, int local_size) {
  // What is fastest here need not be what was fastest elsewhere, and need not give the same bits.
  const bool autotune = config.autotune && config.virtual_workers == 0;
  const DeviceOptions options{
      .local_rank = local_rank, .tf32 = config.precision == Precision::tf32, .autotune = autotune};
  WorkerDevices devices;
  const bool has_gpus = !config.devices.empty() && gpu_index(config.devices.front()) >= 0;
  const int visible = has_gpus ? cuda::device_count() : 0;
  for (const std::string& name : own_gpus(config.devices, local_rank, local_size, visible))
    devices.all.push_back(make_device(name, options));
  if (devices.all.empty()) devices.all.push_back(make_device(config.device, options));
  for (const auto& device : devices.all) {
    if (config.precision == Precision::tf32 && device->type() == DeviceType::cpu)
      throw UsageError("--precision tf32: expected a GPU, got device " + device->name());
  }
  if (config.device_stages > 0 && devices.all.back()->runs_ahead())
    devices.main_index = devices.all.size() - 1;
  devices.home = config.update_on_host ? make_device("cpu") : devices.main();
  return devices;
}

std::unique_ptr<WorkerMesh> make_mesh(const TrainConfig& config, Communicator& world, int local_rank,
                                      int local_size) {
  const Deadline deadline = Deadline::after(config.connect_timeout);
  if (const auto axes = shard_axes(config, world, local_rank, local_size); !axes.empty())
    return std::make_unique<WorkerMesh>(world, axes, deadline);
  if (config.mesh.empty()) return nullptr;
  std::vector<MeshAxis> axes = config.mesh;
  const bool has_copies = std::ranges::find(axes, "dp", &MeshAxis::name) != axes.end();
  if (!has_copies) axes.insert(axes.begin(), {"dp", 1});
  auto made = std::make_unique<WorkerMesh>(world, axes, deadline);
  if (made->mesh.size("pp") > 1) {
    const bool comes_again = config.schedule == PipelineSchedule::interleaved;
    made->links.emplace(made->mesh, comes_again ? PipelineShape::ring : PipelineShape::line, deadline);
  }
  return made;
}

std::optional<TensorParallelGroup> tensor_parallel_group(const TrainConfig& config, const WorkerMesh* mesh) {
  if (mesh == nullptr || mesh->mesh.size("tp") == 1) return std::nullopt;
  return TensorParallelGroup{{mesh->mesh.group("tp"), config.collective_timeout}, config.sequence_parallel};
}

namespace {

NamedDevices named(const TrainConfig& config, const WorkerDevices& devices) {
  NamedDevices named;
  for (std::size_t i = 0; i < config.devices.size(); ++i) named.emplace(config.devices[i], devices.all[i]);
  return named;
}

/// How those share the work that hold the same slices.
std::unique_ptr<ParallelModel> among_copies_of_slices(const TrainConfig& config,
                                                      const StrategyContext& copies,
                                                      const ReducerOptions& reducer) {
  if (config.virtual_workers > 0) return make_virtual_workers(config, copies);
  if (config.shard && !partitions_optimizer(config))
    return make_sharded(copies, ShardOptions{.stage = *config.shard});
  return make_data_parallel(copies, reducer, true, optimizer_state(config));
}

StageOptions stage_options(const TrainConfig& config) {
  return {.schedule = config.schedule, .chunks = config.chunks, .cut = config.stages};
}

std::optional<ShardOptions> shard_options(const TrainConfig& config) {
  return config.shard ? std::optional(ShardOptions{.stage = *config.shard}) : std::nullopt;
}

/// Workers that hold slices of layers, stages, or slices of a stage's layers.
std::unique_ptr<ParallelModel> make_model_parallel(const TrainConfig& config, const StrategyContext& context,
                                                   const WorkerMesh& mesh) {
  const ReducerOptions reducer{.exchange = exchange_for(config.compress, config.seed)};
  Communicator& copies = mesh.mesh.group("dp");
  const auto tp_group = tensor_parallel_group(config, &mesh);
  if (!mesh.links) {
    const StrategyContext among_copies{copies, context.device, context.patience, context.timer};
    return make_tensor_parallel(context, tp_group->group,
                                among_copies_of_slices(config, among_copies, reducer));
  }
  auto stages = make_pipeline(context, PipelineGroups{*mesh.links, copies},
                              PipelineOptions{.stages = stage_options(config),
                                              .reducer = reducer,
                                              .shard = shard_options(config),
                                              .virtual_workers = static_cast<int>(config.virtual_workers)});
  if (!tp_group) return stages;
  return make_tensor_parallel(context, tp_group->group, std::move(stages));
}

}  // namespace

std::unique_ptr<Strategy> make_strategy(const TrainConfig& config, const StrategyContext& context,
                                        const WorkerDevices& devices, const WorkerMesh* mesh,
                                        KeyValueStore* servers) {
  if (servers != nullptr) return std::make_unique<ServerStrategy>(context, *servers, config.update);
  if (config.task.phases > 0) {
    std::vector<std::unique_ptr<Strategy>> parts;
    for (std::size_t i = 0; i < config.task.phases; ++i)
      parts.push_back(strategy_between_workers(config, context, mesh));
    return std::make_unique<PhasedStrategy>(std::move(parts));
  }
  if (!config.mesh.empty()) return make_model_parallel(config, context, *mesh);
  if (config.device_stages > 0) {
    return make_device_pipeline(context, config.devices, named(config, devices), stage_options(config),
                                optimizer_state(config));
  }
  std::unique_ptr<Strategy> strategy = strategy_between_workers(config, context, mesh);
  if (config.placed) {
    return std::make_unique<PlacedStrategy>(context.communicator, std::move(strategy),
                                            PlaceOptions{config.devices, config.places},
                                            named(config, devices));
  }
  if (devices.all.size() == 1) return strategy;
  return std::make_unique<MultiDeviceStrategy>(std::move(strategy), devices.all);
}

}  // namespace dtrain
