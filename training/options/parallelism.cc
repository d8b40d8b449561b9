#include "training/options/parallelism.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

constexpr std::int64_t kMostParts = 65'536;
constexpr std::int64_t kMostThreadWorkers = 4096;

/// 1 for an axis that the workers do not have.
int axis_size(const TrainConfig& recipe, std::string_view name) {
  const auto axis = std::ranges::find(recipe.mesh, name, &MeshAxis::name);
  return axis == recipe.mesh.end() ? 1 : axis->size;
}

void read_virtual_workers(const Options& options, TrainConfig& recipe) {
  recipe.virtual_workers = options.integer("virtual-workers", 0, kMostParts);
  const std::int64_t parts = recipe.virtual_workers;
  if (parts == 0) return;
  if (recipe.threads == 0) recipe.threads = 1;
  if (options.integer("accumulate", 1, INT64_MAX) > 1)
    options.refuse("accumulate", "1 beside --virtual-workers, whose parts are passes already");
  if (options.has("global-batch-size") || !options.has("batch-size")) {
    const std::int64_t global =
        options.has("global-batch-size") ? options.integer("global-batch-size", 1, INT32_MAX) : 256;
    if (global % parts != 0) {
      throw UsageError(fmt::format(
          "--global-batch-size: expected a multiple of {} (--virtual-workers), got {}", parts, global));
    }
  }
  if (recipe.sync_batch_norm)
    options.refuse("sync-batch-norm",
                   "nothing beside --virtual-workers, whose parts have statistics of their own");
  if (recipe.shard && *recipe.shard != ShardStage::optimizer)
    options.refuse("shard", "optimizer or none beside --virtual-workers, which adds whole gradients up");
  if (recipe.compress.kind != Compression::Kind::none)
    options.refuse("compress",
                   "none beside --virtual-workers: what it loses depends on the number of workers");
}

/// Each worker, or group of workers that share a network, has a part at least.
void check_parts(const TrainConfig& recipe, std::int64_t world_size) {
  const std::int64_t groups = world_size / (axis_size(recipe, "tp") * axis_size(recipe, "pp"));
  if (recipe.virtual_workers == 0 || recipe.virtual_workers >= groups) return;
  throw UsageError(fmt::format("--virtual-workers: expected at least one part for each of {} {}, got {}",
                               groups, groups == world_size ? "workers" : "groups of workers",
                               recipe.virtual_workers));
}

/// The axes that options ask for; none: data parallelism alone.
std::vector<MeshAxis> axes_of(const Options& options, std::int64_t tensor, std::int64_t pipeline) {
  if (!options.has("mesh")) {
    std::vector<MeshAxis> axes;
    if (tensor > 1 || pipeline > 1) axes.push_back({"dp", kAutoSize});
    if (pipeline > 1) axes.push_back({"pp", static_cast<int>(pipeline)});
    if (tensor > 1) axes.push_back({"tp", static_cast<int>(tensor)});
    return axes;
  }
  std::vector<MeshAxis> axes = parse_mesh(options.text("mesh"));
  for (const MeshAxis& axis : axes) {
    if (axis.name != "dp" && axis.name != "tp" && axis.name != "pp")
      options.refuse("mesh", "axes dp (batches are shared), tp (layers are divided) and pp (stages)");
  }
  return axes;
}

/// What `option` beside --mesh says must be what the mesh says.
void check_axis(const Options& options, const char* option, std::int64_t given, int size) {
  if (given > 1 && given != size) options.refuse(option, fmt::format("the {} of --mesh, or none", size));
}

void check_beside_mesh(const Options& options, const TrainConfig& recipe, const std::string& form) {
  const auto beside = [&](bool given, const char* option, const char* why) {
    if (given) options.refuse(option, "nothing beside " + form + ", " + why);
  };
  if (recipe.virtual_workers > 0 && options.has("micro-batches"))
    options.refuse("micro-batches", "nothing beside --virtual-workers, whose parts are the micro-batches");
  beside(recipe.shard_group != 0, "shard-group", "whose copies of a part share its state out");
  const bool cuts = recipe.shard.value_or(ShardStage::optimizer) != ShardStage::optimizer;
  if (cuts && recipe.compress.kind != Compression::Kind::none)
    options.refuse("compress",
                   "none beside --shard gradients and parameters, whose gradients go to their owners whole");
}

/// Where `stages` stages with the recipe's chunks are cut.
void read_stages(const Options& options, int stages, TrainConfig& recipe) {
  recipe.stages = parse_stages(options.text("stages"));
  if (recipe.stages.kind != StageCut::Kind::even && stages == 1)
    options.refuse("stages", "even, or --pipeline N beside it, with N of 2 or more");
  const auto given = recipe.stages.firsts.size(), runs = static_cast<std::size_t>(stages * recipe.chunks);
  if (recipe.stages.kind != StageCut::Kind::listed || given == runs) return;
  const std::string wanted = recipe.chunks == 1
                                 ? fmt::format("each of {} stages", stages)
                                 : fmt::format("{} chunks in each of {} stages", recipe.chunks, stages);
  throw UsageError(fmt::format("--stages: expected the first part of {}, {} numbers, got {} ({})", wanted,
                               runs, given, options.text("stages")));
}

void read_schedule(const Options& options, int stages, TrainConfig& recipe) {
  const std::string& schedule = options.choice("schedule", {"gpipe", "1f1b", "interleaved"});
  if (schedule == "gpipe") recipe.schedule = PipelineSchedule::gpipe;
  if (schedule == "interleaved") recipe.schedule = PipelineSchedule::interleaved;
  const bool interleaved = recipe.schedule == PipelineSchedule::interleaved;
  const auto needs_stages = [&](bool given, const char* option) {
    if (given && stages == 1)
      options.refuse(option, "--pipeline N beside it, with N of 2 or more; --accumulate is for the others");
  };
  needs_stages(options.has("micro-batches"), "micro-batches");
  needs_stages(schedule != "1f1b", "schedule");
  if (options.has("chunks") && !interleaved)
    options.refuse("chunks", "--schedule interleaved beside it, whose stages have several");
  if (interleaved && recipe.virtual_workers > 0)
    options.refuse("schedule", "1f1b or gpipe beside --virtual-workers, whose parts come back in one order");
  if (interleaved)
    recipe.chunks = options.has("chunks") ? static_cast<int>(options.integer("chunks", 2, 4096)) : 2;
  read_stages(options, stages, recipe);
}

/// Workers must be whole grids of `tensor` times `pipeline`.
void check_grid(const Options& options, std::int64_t world_size, std::int64_t tensor, std::int64_t pipeline) {
  if (options.has("mesh") || world_size % (tensor * pipeline) == 0) return;
  if (tensor > 1 && pipeline > 1) {
    throw UsageError(
        fmt::format("--pipeline: expected {} workers to be a multiple of {} x {} (--pipeline x --tensor)",
                    world_size, pipeline, tensor));
  }
  throw UsageError(fmt::format("--{}: expected a number that {} workers can be divided by, got {}",
                               tensor > 1 ? "tensor" : "pipeline", world_size, tensor * pipeline));
}

/// --pipeline beside --devices: stages are devices, not workers.
void read_device_stages(const Options& options, TrainConfig& recipe) {
  const auto beside = [&](bool given, const char* option, const char* why) {
    if (given) options.refuse(option, std::string("nothing beside --pipeline over --devices, ") + why);
  };
  beside(options.integer("tensor", 1, 4096) > 1, "tensor", "whose layers are whole");
  beside(options.has("mesh"), "mesh", "whose stages are no workers");
  beside(recipe.sequence_parallel, "sequence-parallel", "whose layers are whole");
  beside(recipe.compress.kind != Compression::Kind::none, "compress", "whose gradients go tensor by tensor");
  recipe.device_stages = static_cast<int>(options.integer("pipeline", 1, 4096));
  read_schedule(options, recipe.device_stages, recipe);
}

void read_mesh(const Options& options, std::int64_t world_size, TrainConfig& recipe) {
  const std::int64_t tensor = options.integer("tensor", 1, 4096),
                     pipeline = options.integer("pipeline", 1, 4096);
  recipe.sequence_parallel = options.enabled("sequence-parallel");
  if (pipeline > 1 && options.has("devices")) return read_device_stages(options, recipe);
  check_grid(options, world_size, tensor, pipeline);
  if (const std::vector<MeshAxis> axes = axes_of(options, tensor, pipeline); !axes.empty()) {
    const MeshShape shape(axes, static_cast<int>(world_size));
    check_axis(options, "tensor", tensor, shape.size("tp"));
    check_axis(options, "pipeline", pipeline, shape.size("pp"));
    if (shape.size("tp") > 1 || shape.size("pp") > 1) recipe.mesh = shape.axes();
  }
  const int divided = axis_size(recipe, "tp"), stages = axis_size(recipe, "pp");
  if (!recipe.mesh.empty()) check_beside_mesh(options, recipe, divided > 1 ? "--tensor" : "--pipeline");
  if (recipe.mesh.empty() && recipe.shard && !deals_optimizer(recipe) &&
      recipe.compress.kind != Compression::Kind::none)
    options.refuse("compress", "none beside --shard, whose gradients go to their owners whole");
  if (recipe.sequence_parallel && divided == 1)
    options.refuse("sequence-parallel", "--tensor N beside it, with N of 2 or more");
  read_schedule(options, stages, recipe);
}

void read_local_sgd(const Options& options, TrainConfig& recipe) {
  recipe.sync_every = options.integer("sync-every", 0, INT64_MAX);
  if (recipe.sync_every == 0) return;
  const auto beside = [&](bool given, const char* option, const char* why) {
    if (given) options.refuse(option, std::string("nothing beside --sync-every, ") + why);
  };
  beside(recipe.virtual_workers > 0, "virtual-workers",
         "which averages the weights of workers, however many there are");
  beside(recipe.shard.has_value(), "shard", "where each worker has an optimizer of its own");
  beside(recipe.compress.kind != Compression::Kind::none, "compress", "which sends no gradients");
  if (!recipe.mesh.empty())
    options.refuse("sync-every", "0 beside --tensor and --pipeline, whose workers hold parts of a network");
  if (recipe.precision == Precision::fp16)
    options.refuse("precision", "fp32 or bf16 beside --sync-every, whose workers would overflow one by one");
}

void refuse_beside_servers(const Options& options, const TrainConfig& recipe) {
  const auto beside = [&](bool given, const char* option, const char* why) {
    if (given) options.refuse(option, std::string("nothing beside --servers, ") + why);
  };
  beside(recipe.virtual_workers > 0, "virtual-workers", "which add up a gradient of each worker, not part");
  beside(recipe.shard.has_value(), "shard", "which hold the optimizer's state");
  beside(recipe.compress.kind != Compression::Kind::none, "compress", "which take whole gradients");
  beside(recipe.sync_every > 0, "sync-every", "which take each step's gradients");
  beside(options.has("devices"), "devices", "whose workers have one device each");
  beside(recipe.placed, "place", "whose workers have one device each");
  beside(options.integer("peer-snapshots", 0, INT64_MAX) > 0, "peer-snapshots",
         "where workers do not hold the optimizer's state; use --checkpoint-every");
  if (!recipe.mesh.empty())
    options.refuse("servers", "0 beside --tensor and --pipeline, whose workers hold parts of a network");
  if (recipe.precision == Precision::fp16)
    options.refuse("precision", "fp32 or bf16 beside --servers, whose workers would overflow one by one");
  beside(recipe.servers > 1 && options.has("clip-grad-norm"), "clip-grad-norm",
         "unless there is one server: each would see the norm of its part only");
}

void read_servers(const Options& options, TrainConfig& recipe) {
  recipe.servers = static_cast<int>(options.integer("servers", 0, kMostParts));
  recipe.update =
      options.choice("update", {"sync", "async"}) == "async" ? ServerUpdate::async : ServerUpdate::sync;
  const bool async = recipe.update == ServerUpdate::async;
  if (recipe.servers == 0 && async)
    options.refuse("update", "--servers N beside it (of dtrain-launch, or of the program under mpirun)");
  if (options.has("max-staleness")) {
    if (!async) options.refuse("max-staleness", "--update async beside it, with --servers N");
    recipe.max_staleness = options.integer("max-staleness", 0, INT64_MAX);
  }
  if (recipe.servers == 0) return;
  refuse_beside_servers(options, recipe);
  if (!async) return;
  if (recipe.sync_batch_norm)
    options.refuse("sync-batch-norm",
                   "nothing beside --update async, where workers do not wait for each other");
  if (options.integer("check-replicas", 0, INT64_MAX) > 0)
    options.refuse("check-replicas", "0 beside --update async, where workers hold different weights");
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
    throw UsageError(fmt::format("--shard-group: expected a number that {} workers can be divided by, got {}",
                                 world_size, *size));
  }
  return static_cast<int>(*size);
}

void read_sharding(const Options& options, std::int64_t world_size, TrainConfig& recipe) {
  recipe.compress = compression_named(options.text("compress"));
  const std::string& shard = options.choice("shard", {"none", "optimizer", "gradients", "parameters"});
  if (shard == "optimizer") recipe.shard = ShardStage::optimizer;
  if (shard == "gradients") recipe.shard = ShardStage::gradients;
  if (shard == "parameters") recipe.shard = ShardStage::parameters;
  recipe.shard_group = read_shard_group(options, world_size);
  if (recipe.shard_group != 0 && !recipe.shard)
    options.refuse("shard-group", "--shard beside it, which says what is shared out");
}

void check_shard_group(const Options& options, const TrainConfig& recipe) {
  if (recipe.mesh.empty() && deals_optimizer(recipe) && recipe.shard_group != 0) {
    options.refuse("shard-group",
                   "job beside --virtual-workers, --place and stages on --devices, where all workers share "
                   "the optimizer's state out");
  }
}

}  // namespace

void read_parallelism(const Options& options, std::int64_t world_size, TrainConfig& recipe) {
  recipe.sync_batch_norm = options.enabled("sync-batch-norm");
  recipe.placed = options.has("place");
  read_sharding(options, world_size, recipe);
  read_virtual_workers(options, recipe);
  read_mesh(options, world_size, recipe);
  check_parts(recipe, world_size);
  check_shard_group(options, recipe);
  read_local_sgd(options, recipe);
  read_servers(options, recipe);
}

bool deals_optimizer(const TrainConfig& recipe) {
  return recipe.shard == ShardStage::optimizer &&
         (!recipe.mesh.empty() || recipe.virtual_workers > 0 || recipe.placed || recipe.device_stages > 0);
}

int thread_workers(const Options& options) {
  return static_cast<int>(options.integer("thread-workers", 1, kMostThreadWorkers));
}

void check_optimizer(const Options& options, TrainConfig& recipe) {
  if (!is_layerwise(recipe.optimizer.rule)) return;
  const bool cuts_layers = recipe.shard && !deals_optimizer(recipe);
  if (cuts_layers || axis_size(recipe, "tp") > 1 || recipe.servers > 1)
    options.refuse("optimizer", "one without a rate for each layer where workers hold parts of layers");
  if (recipe.graphs == GraphUse::on)
    options.refuse("cuda-graph",
                   "auto or off beside --optimizer lars and lamb, whose steps are not recorded");
  recipe.graphs = GraphUse::off;
}

std::int64_t shares_of(const TrainConfig& recipe, std::int64_t world_size) {
  if (recipe.virtual_workers > 0) return recipe.virtual_workers;
  return world_size / (axis_size(recipe, "tp") * axis_size(recipe, "pp"));
}

std::int64_t passes_of(const Options& options, const TrainConfig& recipe) {
  const std::int64_t accumulate = options.integer("accumulate", 1, INT64_MAX);
  const int stages = std::max(axis_size(recipe, "pp"), recipe.device_stages);
  if (stages == 1) return accumulate;
  if (accumulate > 1) options.refuse("accumulate", "1 beside --pipeline; choose --micro-batches");
  if (recipe.virtual_workers > 0) return 1;  // a micro-batch for each part
  const std::int64_t passes =
      options.has("micro-batches") ? options.integer("micro-batches", 1, 1 << 20) : 4 * stages;
  if (recipe.schedule == PipelineSchedule::interleaved && passes % stages != 0) {
    throw UsageError(fmt::format(
        "--micro-batches: expected a multiple of the {} stages beside --schedule interleaved, got {}", stages,
        passes));
  }
  return passes;
}

namespace {

/// What --place asks for; the devices that it names are those there are, unless --devices says so.
void read_place(const Options& options, TrainConfig& recipe) {
  if (!recipe.placed) return;
  if (recipe.device_stages > 0)
    options.refuse("place", "nothing beside --pipeline over --devices, which places its stages");
  if (options.text("place") == "auto") {
    if (recipe.devices.empty()) options.refuse("place", "--devices beside auto, as in cpu:0,cpu:1");
    return;
  }
  recipe.places = parse_places(options.text("place"));
  const std::string& first = recipe.places.front().device;
  const std::string type = first.starts_with("cuda:") ? "cuda" : "cpu";
  for (const auto& [module, device] : recipe.places) {
    if (std::ranges::find(recipe.devices, device) != recipe.devices.end()) continue;
    const auto refuse = [&, &module = module, &device = device](const std::string& expected) {
      throw UsageError(fmt::format("--place: expected {} for {}, got {}", expected, module, device));
    };
    if (options.has("devices"))
      refuse(fmt::format("one of the devices of --devices ({})", options.text("devices")));
    if (!is_device(device, "cpu") && !is_device(device, "cuda"))
      refuse("a CPU or a GPU, as in cpu:0 and cuda:0,");
    if (!is_device(device, type)) refuse(fmt::format("devices of one kind, as {},", first));
    recipe.devices.push_back(device);
  }
}

/// What parts of a network on several devices do not go with.
void check_beside_places(const Options& options, const TrainConfig& recipe) {
  const std::string form = recipe.placed ? "--place" : "--pipeline over --devices";
  const auto beside = [&](bool given, const char* option, const char* why) {
    if (given) options.refuse(option, "nothing beside " + form + ", " + why);
  };
  beside(recipe.update_on_host, "update-on", "where each part is updated on its device");
  if (recipe.shard && *recipe.shard != ShardStage::optimizer)
    options.refuse("shard",
                   "optimizer or none beside " + form + ", whose parameters are whole, each on its device");
  beside(recipe.sync_every > 0, "sync-every", "which shares gradients in each step");
}

}  // namespace

void read_devices(const Options& options, TrainConfig& recipe) {
  recipe.update_on_host = options.choice("update-on", {"device", "host"}) == "host";
  if (options.has("devices")) recipe.devices = device_names(options);
  read_place(options, recipe);
  if (recipe.devices.empty()) {
    if (recipe.update_on_host) options.refuse("update-on", "--devices beside it");
    return;
  }
  const char* const given = options.has("devices") ? "devices" : "place";
  if (recipe.device != "auto")
    options.refuse("device", fmt::format("nothing beside --{}, which names them", given));
  const auto refuse = [&](bool beside, const char* why) {
    if (beside) options.refuse(given, why);
  };
  refuse(recipe.virtual_workers > 0 && recipe.device_stages > 0,
         "nothing beside --virtual-workers, whose parts are computed one after the other");
  refuse(recipe.virtual_workers > 0 && !recipe.placed,
         "--place beside it where --virtual-workers is, whose parts a worker computes one after the other; "
         "for several at a time use --thread-workers, or a process for each GPU");
  refuse(!recipe.mesh.empty(), "nothing beside --tensor and --pipeline, whose messages belong to one thread");
  const bool has_replicas = !recipe.placed && recipe.device_stages == 0;
  refuse(has_replicas && recipe.shard == ShardStage::parameters,
         "nothing beside --shard parameters, which are whole on one device at a time");
  if (recipe.sync_batch_norm)
    options.refuse("sync-batch-norm", "nothing beside --devices, where each device has its statistics");
  const auto count = static_cast<std::int64_t>(recipe.devices.size());
  if (recipe.device_stages > 0 && recipe.device_stages != count) {
    throw UsageError(fmt::format("--pipeline: expected a stage for each of {} devices, got {}", count,
                                 recipe.device_stages));
  }
  if (!has_replicas) {
    check_beside_places(options, recipe);
  } else if (recipe.batch.per_worker < count) {
    throw UsageError(
        fmt::format("--devices: expected at least one sample of a pass for each of {} devices, got {}; "
                    "use a larger batch",
                    count, recipe.batch.per_worker));
  }
  if (recipe.graphs == GraphUse::on)
    options.refuse("cuda-graph", "auto or off beside --devices, since a graph is of one device");
}

void check_beside_thread_workers(const Options& options, TrainConfig& recipe) {
  if (recipe.thread_workers == 1) return;
  const char* const expected =
      "CPUs beside --thread-workers; start a process for each GPU with dtrain-launch";
  if (recipe.devices.empty()) {
    if (recipe.device == "auto") recipe.device = "cpu";
    if (recipe.device != "cpu") options.refuse("device", expected);
  } else if (!is_device(recipe.devices.front(), "cpu")) {
    options.refuse(options.has("devices") ? "devices" : "place", expected);
  }
  if (recipe.backend != Backend::automatic)
    options.refuse("backend", "auto beside --thread-workers, which share the memory of their process");
  if (recipe.peer_snapshots > 0)
    options.refuse("peer-snapshots", "0 beside --thread-workers, which are lost together");
}

}  // namespace dtrain
