#include "training/options/parallelism.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/error.h"
#include "training/options/combinations.h"

namespace dtrain {

int axis_size(const TrainConfig& config, std::string_view name) {
  const auto axis = std::ranges::find(config.mesh, name, &MeshAxis::name);
  return axis == config.mesh.end() ? 1 : axis->size;
}

namespace {

int stage_count(const TrainConfig& config) { return std::max(axis_size(config, "pp"), config.device_stages); }

/// Workers that share a network each.
std::int64_t group_count(const TrainConfig& config, std::int64_t world_size) {
  return world_size / (axis_size(config, "tp") * axis_size(config, "pp"));
}

/// The axes that options ask for; none: data parallelism alone.
std::vector<MeshAxis> axes_of(const Options& options, const TrainConfig& config) {
  if (!options.has("mesh")) {
    std::vector<MeshAxis> axes;
    if (config.tensor > 1 || config.pipeline > 1) axes.push_back({"dp", kAutoSize});
    if (config.pipeline > 1) axes.push_back({"pp", config.pipeline});
    if (config.tensor > 1) axes.push_back({"tp", config.tensor});
    return axes;
  }
  std::vector<MeshAxis> axes = parse_mesh(options.text("mesh"));
  for (const MeshAxis& axis : axes) {
    if (axis.name != "dp" && axis.name != "tp" && axis.name != "pp")
      options.refuse("mesh", "axes dp (data parallelism), tp (tensor parallelism) and pp (pipeline stages)");
  }
  return axes;
}

/// What `option` says next to --mesh must be what the mesh says.
void check_axis(const Options& options, const char* option, int given, int size) {
  if (given > 1 && given != size) options.refuse(option, fmt::format("the {} of --mesh, or none", size));
}

/// Workers must be whole grids of tensor times pipeline.
void check_grid(const Options& options, std::int64_t world_size, const TrainConfig& config) {
  const int tensor = config.tensor, pipeline = config.pipeline;
  if (options.has("mesh") || world_size % (tensor * pipeline) == 0) return;
  if (tensor > 1 && pipeline > 1) {
    throw UsageError(
        fmt::format("--pipeline: expected {} workers to be a multiple of {} x {} (--pipeline x --tensor)",
                    world_size, pipeline, tensor));
  }
  throw UsageError(fmt::format("--{}: expected a divisor of the {} workers, got {}",
                               tensor > 1 ? "tensor" : "pipeline", world_size, tensor * pipeline));
}

/// --pipeline with --devices makes stages of devices, not of workers.
void read_mesh(const Options& options, std::int64_t world_size, TrainConfig& config) {
  if (config.pipeline > 1 && options.has("devices")) {
    config.device_stages = config.pipeline;
    return;
  }
  check_grid(options, world_size, config);
  const std::vector<MeshAxis> axes = axes_of(options, config);
  if (axes.empty()) return;
  const MeshShape shape(axes, static_cast<int>(world_size));
  check_axis(options, "tensor", config.tensor, shape.size("tp"));
  check_axis(options, "pipeline", config.pipeline, shape.size("pp"));
  if (shape.size("tp") > 1 || shape.size("pp") > 1) config.mesh = shape.axes();
}

void check_virtual_workers(const Options& options, std::int64_t world_size, const TrainConfig& config) {
  if (config.virtual_workers == 0) return;
  std::int64_t global = kGlobalBatch;
  options.read("global-batch-size", global);
  if (!options.has("batch-size") && global % config.virtual_workers != 0) {
    throw UsageError(fmt::format("--global-batch-size: expected a multiple of {} (--virtual-workers), got {}",
                                 config.virtual_workers, global));
  }
  const std::int64_t groups = group_count(config, world_size);
  if (config.virtual_workers >= groups) return;
  throw UsageError(
      fmt::format("--virtual-workers: expected at least one micro-batch for each of {} {}, got {}", groups,
                  groups == world_size ? "workers" : "groups of workers", config.virtual_workers));
}

/// A list of first parts must be as long as there are stages, or chunks in them.
void check_stages(const Options& options, const TrainConfig& config) {
  const int stages = stage_count(config);
  const auto given = config.stages.firsts.size(), runs = static_cast<std::size_t>(stages * config.chunks);
  if (config.stages.kind != StageCut::Kind::listed || given == runs) return;
  const std::string wanted = config.chunks == 1
                                 ? fmt::format("each of {} stages", stages)
                                 : fmt::format("{} chunks in each of {} stages", config.chunks, stages);
  throw UsageError(fmt::format("--stages: expected the first part of {}, {} numbers, got {} ({})", wanted,
                               runs, given, options.text("stages")));
}

/// "cpu:0", "cuda:0": `type` is what stands before the colon.
bool is_device(const std::string& name, std::string_view type) {
  const std::string prefix = std::string(type) + ":";
  return name.starts_with(prefix) && parse_integer(name.substr(prefix.size())).value_or(-1) >= 0;
}

std::vector<std::string> device_names(const Options& options) {
  std::vector<std::string> names;
  const std::string& text = options.text("devices");
  const std::string_view type = text.starts_with("cuda:") ? "cuda" : "cpu";
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    names.push_back(text.substr(begin, end - begin));
    if (!is_device(names.back(), type) || std::ranges::count(names, names.back()) > 1) {
      options.refuse("devices",
                     "two CPUs or more, or GPUs, each once, as in cpu:0,cpu:1 or cuda:0,cuda:1 (a worker for "
                     "each GPU is faster)");
    }
    begin = end + 1;
  }
  if (names.size() < 2)
    options.refuse("devices", "two CPUs or more, or GPUs, as in cpu:0,cpu:1 or cuda:0,cuda:1");
  return names;
}

/// How many workers have a part each.
int read_shard_group(const Options& options, std::int64_t world_size) {
  const std::string& text = options.text("shard-group");
  if (text == "job") return 0;
  if (text == "node") return kShardNode;
  const auto size = parse_integer(text);
  if (!size || *size < 1) options.refuse("shard-group", "a number of workers, node or job");
  if (world_size % *size != 0) {
    throw UsageError(
        fmt::format("--shard-group: expected a divisor of the {} workers, got {}", world_size, *size));
  }
  return static_cast<int>(*size);
}

/// What --place asks for; the devices that it names are those there are, unless --devices says so.
void read_place(const Options& options, TrainConfig& config) {
  if (!config.placed) return;
  if (options.text("place") == "auto") return;
  config.places = parse_places(options.text("place"));
  const std::string& first = config.places.front().device;
  const std::string type = first.starts_with("cuda:") ? "cuda" : "cpu";
  for (const auto& [module, device] : config.places) {
    if (std::ranges::find(config.devices, device) != config.devices.end()) continue;
    const auto refuse = [&, &module = module, &device = device](const std::string& expected) {
      throw UsageError(fmt::format("--place: expected {} for {}, got {}", expected, module, device));
    };
    if (options.has("devices"))
      refuse(fmt::format("one of the devices of --devices ({})", options.text("devices")));
    if (!is_device(device, "cpu") && !is_device(device, "cuda"))
      refuse("a CPU or a GPU, as in cpu:0 and cuda:0,");
    if (!is_device(device, type)) refuse(fmt::format("devices of one kind, as {},", first));
    config.devices.push_back(device);
  }
}

/// Several workers of one process are on CPUs.
void check_thread_workers(const Options& options, TrainConfig& config) {
  if (config.thread_workers == 1) return;
  const char* const expected = "CPUs with --thread-workers; start a process for each GPU with dtrain-launch";
  if (config.devices.empty()) {
    if (config.device == "auto") config.device = "cpu";
    if (config.device != "cpu") options.refuse("device", expected);
  } else if (!is_device(config.devices.front(), "cpu")) {
    options.refuse(options.has("devices") ? "devices" : "place", expected);
  }
}

}  // namespace

void read_parallelism(const Options& options, std::int64_t world_size, TrainConfig& config) {
  config.shard_group = read_shard_group(options, world_size);
  config.update_on_host = options.text("update-on") == "host";
  config.placed = options.has("place");
  if (options.has("devices")) config.devices = device_names(options);
  read_mesh(options, world_size, config);
  check_combinations(options, config);
  const bool interleaved = config.schedule == PipelineSchedule::interleaved;
  if (config.chunks == 0) config.chunks = interleaved ? 2 : 1;
  if (config.virtual_workers > 0 && config.threads == 0) config.threads = 1;
  check_virtual_workers(options, world_size, config);
  check_stages(options, config);
  read_place(options, config);
  check_thread_workers(options, config);
}

bool partitions_optimizer(const TrainConfig& config) {
  return config.shard == ShardStage::optimizer &&
         (!config.mesh.empty() || config.virtual_workers > 0 || config.placed || config.device_stages > 0);
}

std::int64_t shares_of(const TrainConfig& config, std::int64_t world_size) {
  return config.virtual_workers > 0 ? config.virtual_workers : group_count(config, world_size);
}

std::int64_t passes_of(const TrainConfig& config) {
  const int stages = stage_count(config);
  if (stages == 1) return config.accumulate;
  if (config.virtual_workers > 0) return 1;  // a micro-batch for each part
  const std::int64_t passes = config.micro_batches.value_or(4 * stages);
  if (config.schedule == PipelineSchedule::interleaved && passes % stages != 0) {
    throw UsageError(fmt::format(
        "--micro-batches: expected a multiple of the {} stages with --schedule interleaved, got {}", stages,
        passes));
  }
  return passes;
}

void check_batch(const TrainConfig& config) {
  const auto count = static_cast<std::int64_t>(config.devices.size());
  if (config.device_stages > 0 && config.device_stages != count) {
    throw UsageError(fmt::format("--pipeline: expected a stage for each of {} devices, got {}", count,
                                 config.device_stages));
  }
  if (!has_replicas(config) || config.batch.per_worker >= count) return;
  throw UsageError(
      fmt::format("--devices: expected at least one sample per micro-batch for each of {} devices, got {}; "
                  "use a larger batch",
                  count, config.batch.per_worker));
}

bool has_replicas(const TrainConfig& config) {
  return !config.devices.empty() && !config.placed && config.device_stages == 0;
}

}  // namespace dtrain
