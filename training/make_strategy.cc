#include "training/make_strategy.h"

#include <fmt/format.h>

#include <algorithm>

#include "parallel/forms.h"
#include "parallel/placed/multi_device_strategy.h"
#include "parallel/placed/placed_strategy.h"
#include "parallel/server/server_strategy.h"
#include "runtime/base/error.h"
#include "runtime/base/options.h"
#include "runtime/device/cuda/cuda_device.h"
#include "training/options/parallelism.h"

namespace dtrain {
namespace {

std::unique_ptr<ParallelModel> make_sharded(const TrainConfig& recipe, const StrategyContext& context,
                                            const WorkerMesh* mesh) {
  std::optional<ShardGroups> groups;
  if (mesh != nullptr) groups.emplace(ShardGroups{mesh->mesh.group("parts"), &mesh->mesh.group("copies")});
  return make_sharded(context, ShardOptions{.stage = *recipe.shard}, groups);
}

OptimizerState optimizer_state(const TrainConfig& recipe) {
  return deals_optimizer(recipe) ? OptimizerState::dealt_out : OptimizerState::everywhere;
}

std::unique_ptr<ParallelModel> make_virtual_workers(const TrainConfig& recipe,
                                                    const StrategyContext& context) {
  return make_virtual_workers(context, static_cast<int>(recipe.virtual_workers), BucketOptions{},
                              optimizer_state(recipe));
}

std::unique_ptr<ParallelModel> strategy_between_workers(const TrainConfig& recipe,
                                                        const StrategyContext& context,
                                                        const WorkerMesh* mesh) {
  if (recipe.virtual_workers > 0) return make_virtual_workers(recipe, context);
  if (recipe.shard && !deals_optimizer(recipe)) return make_sharded(recipe, context, mesh);
  if (recipe.sync_every > 0) return make_local_sgd(context, recipe.sync_every);
  // Compressed steps are not all alike, so they are not recorded either.
  const bool compresses = recipe.compress.kind != Compression::Kind::none;
  return make_data_parallel(context, ReducerOptions{.exchange = exchange_for(recipe.compress, recipe.seed)},
                            recipe.sync_batch_norm || compresses, optimizer_state(recipe));
}

/// The axes of workers that have a part each; none where all have.
std::vector<MeshAxis> shard_axes(const TrainConfig& recipe, const Communicator& world, int local_rank,
                                 int local_size) {
  if (recipe.shard_group == 0) return {};
  if (recipe.shard_group != kShardNode) return {{"copies", kAutoSize}, {"parts", recipe.shard_group}};
  if (world.size() % local_size != 0 || world.rank() % local_size != local_rank) {
    throw UsageError(
        fmt::format("--shard-group node: expected nodes with equally many workers whose ranks follow each "
                    "other, got {} of {} workers here, rank {} the one number {}; give a number",
                    local_size, world.size(), world.rank(), local_rank));
  }
  return {{"copies", kAutoSize}, {"parts", local_size}};
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

WorkerDevices make_devices(const TrainConfig& recipe, int local_rank, int local_size) {
  // What is fastest here need not be what was fastest elsewhere, and need not give the same bits.
  const bool autotune = recipe.autotune && recipe.virtual_workers == 0;
  const DeviceOptions options{
      .local_rank = local_rank, .tf32 = recipe.precision == Precision::tf32, .autotune = autotune};
  WorkerDevices devices;
  const bool has_gpus = !recipe.devices.empty() && gpu_index(recipe.devices.front()) >= 0;
  const int visible = has_gpus ? cuda::device_count() : 0;
  for (const std::string& name : own_gpus(recipe.devices, local_rank, local_size, visible))
    devices.all.push_back(make_device(name, options));
  if (devices.all.empty()) devices.all.push_back(make_device(recipe.device, options));
  for (const auto& device : devices.all) {
    if (recipe.precision == Precision::tf32 && device->type() == DeviceType::cpu)
      throw UsageError("--precision tf32: expected a GPU, got device " + device->name());
  }
  if (recipe.device_stages > 0 && devices.all.back()->runs_ahead())
    devices.main_index = devices.all.size() - 1;
  devices.home = recipe.update_on_host ? make_device("cpu") : devices.main();
  return devices;
}

std::unique_ptr<WorkerMesh> make_mesh(const TrainConfig& recipe, Communicator& world, int local_rank,
                                      int local_size) {
  const Deadline deadline = Deadline::after(recipe.connect_timeout);
  if (const auto axes = shard_axes(recipe, world, local_rank, local_size); !axes.empty())
    return std::make_unique<WorkerMesh>(world, axes, deadline);
  if (recipe.mesh.empty()) return nullptr;
  std::vector<MeshAxis> axes = recipe.mesh;
  const bool has_copies = std::ranges::find(axes, "dp", &MeshAxis::name) != axes.end();
  if (!has_copies) axes.insert(axes.begin(), {"dp", 1});
  auto made = std::make_unique<WorkerMesh>(world, axes, deadline);
  if (made->mesh.size("pp") > 1) {
    const bool comes_again = recipe.schedule == PipelineSchedule::interleaved;
    made->links.emplace(made->mesh, comes_again ? PipelineShape::ring : PipelineShape::line, deadline);
  }
  return made;
}

std::optional<Division> division_of(const TrainConfig& recipe, const WorkerMesh* mesh) {
  if (mesh == nullptr || mesh->mesh.size("tp") == 1) return std::nullopt;
  return Division{{mesh->mesh.group("tp"), recipe.collective_timeout}, recipe.sequence_parallel};
}

namespace {

NamedDevices named(const TrainConfig& recipe, const WorkerDevices& devices) {
  NamedDevices named;
  for (std::size_t i = 0; i < recipe.devices.size(); ++i) named.emplace(recipe.devices[i], devices.all[i]);
  return named;
}

/// How those share the work that hold the same slices.
std::unique_ptr<ParallelModel> among_copies_of_slices(const TrainConfig& recipe,
                                                      const StrategyContext& copies,
                                                      const ReducerOptions& reducer) {
  if (recipe.virtual_workers > 0) return make_virtual_workers(recipe, copies);
  if (recipe.shard && !deals_optimizer(recipe))
    return make_sharded(copies, ShardOptions{.stage = *recipe.shard});
  return make_data_parallel(copies, reducer, true, optimizer_state(recipe));
}

StageOptions stage_options(const TrainConfig& recipe) {
  return {.schedule = recipe.schedule, .chunks = recipe.chunks, .cut = recipe.stages};
}

std::optional<ShardOptions> shard_options(const TrainConfig& recipe) {
  return recipe.shard ? std::optional(ShardOptions{.stage = *recipe.shard}) : std::nullopt;
}

/// Workers that hold slices of layers, stages, or slices of a stage's layers.
std::unique_ptr<ParallelModel> make_divided(const TrainConfig& recipe, const StrategyContext& context,
                                            const WorkerMesh& mesh) {
  const ReducerOptions reducer{.exchange = exchange_for(recipe.compress, recipe.seed)};
  Communicator& copies = mesh.mesh.group("dp");
  const auto division = division_of(recipe, &mesh);
  if (!mesh.links) {
    const StrategyContext among_copies{copies, context.device, context.patience, context.timer};
    return make_tensor_parallel(context, division->group,
                                among_copies_of_slices(recipe, among_copies, reducer));
  }
  auto stages = make_pipeline(context, PipelineGroups{*mesh.links, copies},
                              PipelineOptions{.stages = stage_options(recipe),
                                              .reducer = reducer,
                                              .shard = shard_options(recipe),
                                              .virtual_workers = static_cast<int>(recipe.virtual_workers)});
  if (!division) return stages;
  return make_tensor_parallel(context, division->group, std::move(stages));
}

}  // namespace

std::unique_ptr<Strategy> make_strategy(const TrainConfig& recipe, const StrategyContext& context,
                                        const WorkerDevices& devices, const WorkerMesh* mesh,
                                        KeyValueStore* servers) {
  if (servers != nullptr) return std::make_unique<ServerStrategy>(context, *servers, recipe.update);
  if (!recipe.mesh.empty()) return make_divided(recipe, context, *mesh);
  if (recipe.device_stages > 0) {
    return make_device_pipeline(context, recipe.devices, named(recipe, devices), stage_options(recipe),
                                optimizer_state(recipe));
  }
  std::unique_ptr<Strategy> strategy = strategy_between_workers(recipe, context, mesh);
  if (recipe.placed) {
    return std::make_unique<PlacedStrategy>(context.communicator, std::move(strategy),
                                            PlaceOptions{recipe.devices, recipe.places},
                                            named(recipe, devices));
  }
  if (devices.all.size() == 1) return strategy;
  return std::make_unique<MultiDeviceStrategy>(std::move(strategy), devices.all);
}

}  // namespace dtrain
