#include "training/parallelism.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

constexpr std::int64_t kMostParts = 65'536;

/// 1 for an axis that the workers do not have.
int axis_size(const Recipe& recipe, std::string_view name) {
  const auto axis = std::ranges::find(recipe.mesh, name, &MeshAxis::name);
  return axis == recipe.mesh.end() ? 1 : axis->size;
}

void read_virtual_workers(const Options& options, std::int64_t world_size, Recipe& recipe) {
  recipe.virtual_workers = options.integer("virtual-workers", 0, kMostParts);
  const std::int64_t parts = recipe.virtual_workers;
  if (parts == 0) return;
  if (recipe.threads == 0) recipe.threads = 1;
  if (parts < world_size) {
    throw UsageError(fmt::format(
        "--virtual-workers: expected at least one part for each of {} workers, got {}", world_size, parts));
  }
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
    options.refuse("sync-batch-norm", "nothing beside --virtual-workers, where each part has its statistics");
  if (recipe.shard) options.refuse("shard", "none beside --virtual-workers, which adds whole gradients up");
  if (recipe.compress.kind != Compression::Kind::none)
    options.refuse("compress", "none beside --virtual-workers, whose sums are exact");
}

/// The axes that options ask for; none: data parallelism alone.
std::vector<MeshAxis> axes_of(const Options& options, std::int64_t tensor, std::int64_t pipeline) {
  if (!options.has("mesh")) {
    if (tensor > 1) return {{"dp", kAutoSize}, {"tp", static_cast<int>(tensor)}};
    if (pipeline > 1) return {{"dp", kAutoSize}, {"pp", static_cast<int>(pipeline)}};
    return {};
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

void check_beside_mesh(const Options& options, const Recipe& recipe, const std::string& form) {
  const auto beside = [&](bool given, const char* option, const char* why) {
    if (given) options.refuse(option, "nothing beside " + form + ", " + why);
  };
  beside(recipe.virtual_workers > 0, "virtual-workers", "whose sums are over workers");
  beside(recipe.shard.has_value(), "shard", "which divides parameters in another way");
  beside(recipe.compress.kind != Compression::Kind::none, "compress", "whose gradients are parts already");
  beside(recipe.sync_batch_norm, "sync-batch-norm", "where a batch norm is on some workers only");
  if (recipe.precision == Precision::fp16)
    options.refuse("precision", "fp32 or bf16 beside " + form + ", whose workers would overflow one by one");
}

void read_mesh(const Options& options, std::int64_t world_size, Recipe& recipe) {
  const std::int64_t tensor = options.integer("tensor", 1, 4096),
                     pipeline = options.integer("pipeline", 1, 4096);
  recipe.sequence_parallel = options.enabled("sequence-parallel");
  recipe.schedule = options.choice("schedule", {"gpipe", "1f1b"}) == "gpipe"
                        ? PipelineSchedule::gpipe
                        : PipelineSchedule::one_forward_one_backward;
  if (tensor > 1 && pipeline > 1)
    options.refuse("pipeline", "nothing beside --tensor: the two do not go together yet");
  for (const auto& [option, size] : {std::pair{"tensor", tensor}, {"pipeline", pipeline}}) {
    if (options.has("mesh") || world_size % size == 0) continue;
    throw UsageError(fmt::format("--{}: expected a number that {} workers can be divided by, got {}", option,
                                 world_size, size));
  }
  if (const std::vector<MeshAxis> axes = axes_of(options, tensor, pipeline); !axes.empty()) {
    const MeshShape shape(axes, static_cast<int>(world_size));
    check_axis(options, "tensor", tensor, shape.size("tp"));
    check_axis(options, "pipeline", pipeline, shape.size("pp"));
    if (shape.size("tp") > 1 && shape.size("pp") > 1)
      options.refuse("mesh", "tp or pp: the two do not go together yet");
    if (shape.size("tp") > 1 || shape.size("pp") > 1) recipe.mesh = shape.axes();
  }
  const int divided = axis_size(recipe, "tp"), stages = axis_size(recipe, "pp");
  if (!recipe.mesh.empty()) check_beside_mesh(options, recipe, divided > 1 ? "--tensor" : "--pipeline");
  if (recipe.sequence_parallel && divided == 1)
    options.refuse("sequence-parallel", "--tensor N beside it, with N of 2 or more");
  if (options.has("micro-batches") && stages == 1)
    options.refuse("micro-batches",
                   "--pipeline N beside it, with N of 2 or more; --accumulate is for the others");
}

void read_local_sgd(const Options& options, Recipe& recipe) {
  recipe.sync_every = options.integer("sync-every", 0, INT64_MAX);
  if (recipe.sync_every == 0) return;
  const auto beside = [&](bool given, const char* option, const char* why) {
    if (given) options.refuse(option, std::string("nothing beside --sync-every, ") + why);
  };
  beside(recipe.virtual_workers > 0, "virtual-workers", "whose numbers depend on the workers");
  beside(recipe.shard.has_value(), "shard", "where each worker has an optimizer of its own");
  beside(recipe.compress.kind != Compression::Kind::none, "compress", "which sends no gradients");
  if (!recipe.mesh.empty())
    options.refuse("sync-every", "0 beside --tensor and --pipeline, whose workers hold parts of a network");
  if (recipe.precision == Precision::fp16)
    options.refuse("precision", "fp32 or bf16 beside --sync-every, whose workers would overflow one by one");
}

void refuse_beside_servers(const Options& options, const Recipe& recipe) {
  const auto beside = [&](bool given, const char* option, const char* why) {
    if (given) options.refuse(option, std::string("nothing beside --servers, ") + why);
  };
  beside(recipe.virtual_workers > 0, "virtual-workers", "whose sums are over workers");
  beside(recipe.shard.has_value(), "shard", "which hold the optimizer's state");
  beside(recipe.compress.kind != Compression::Kind::none, "compress", "which take whole gradients");
  beside(recipe.sync_every > 0, "sync-every", "which take each step's gradients");
  beside(options.has("devices"), "devices", "whose workers have one device each");
  beside(options.integer("peer-snapshots", 0, INT64_MAX) > 0, "peer-snapshots",
         "where workers do not hold the optimizer's state; use --checkpoint-every");
  if (!recipe.mesh.empty())
    options.refuse("servers", "0 beside --tensor and --pipeline, whose workers hold parts of a network");
  if (recipe.precision == Precision::fp16)
    options.refuse("precision", "fp32 or bf16 beside --servers, whose workers would overflow one by one");
  beside(recipe.servers > 1 && options.has("clip-grad-norm"), "clip-grad-norm",
         "unless there is one server: each would see the norm of its part only");
}

void read_servers(const Options& options, Recipe& recipe) {
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

std::vector<std::string> device_names(const Options& options) {
  std::vector<std::string> names;
  const std::string& text = options.text("devices");
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    names.push_back(text.substr(begin, end - begin));
    const bool is_cpu =
        names.back().starts_with("cpu:") && parse_integer(names.back().substr(4)).value_or(-1) >= 0;
    if (!is_cpu || std::ranges::count(names, names.back()) > 1)
      options.refuse("devices",
                     "two CPUs or more, each once, as in cpu:0,cpu:1 (a worker for each GPU is faster)");
    begin = end + 1;
  }
  if (names.size() < 2) options.refuse("devices", "two CPUs or more, as in cpu:0,cpu:1");
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

void read_sharding(const Options& options, std::int64_t world_size, Recipe& recipe) {
  recipe.compress = compression_named(options.text("compress"));
  const std::string& shard = options.choice("shard", {"none", "optimizer", "gradients", "parameters"});
  if (shard == "optimizer") recipe.shard = ShardStage::optimizer;
  if (shard == "gradients") recipe.shard = ShardStage::gradients;
  if (shard == "parameters") recipe.shard = ShardStage::parameters;
  recipe.shard_group = read_shard_group(options, world_size);
  if (recipe.shard_group != 0 && !recipe.shard)
    options.refuse("shard-group", "--shard beside it, which says what is shared out");
  if (recipe.shard && recipe.compress.kind != Compression::Kind::none)
    options.refuse("compress", "none beside --shard, whose gradients go to their owners whole");
}

}  // namespace

void read_parallelism(const Options& options, std::int64_t world_size, Recipe& recipe) {
  recipe.sync_batch_norm = options.enabled("sync-batch-norm");
  read_sharding(options, world_size, recipe);
  read_virtual_workers(options, world_size, recipe);
  read_mesh(options, world_size, recipe);
  read_local_sgd(options, recipe);
  read_servers(options, recipe);
}

void check_optimizer(const Options& options, Recipe& recipe) {
  if (!is_layerwise(recipe.optimizer.rule)) return;
  if (recipe.shard || axis_size(recipe, "tp") > 1 || recipe.servers > 1)
    options.refuse("optimizer", "one without a rate for each layer where workers hold parts of layers");
  if (recipe.graphs == GraphUse::on)
    options.refuse("cuda-graph",
                   "auto or off beside --optimizer lars and lamb, whose steps are not recorded");
  recipe.graphs = GraphUse::off;
}

std::int64_t shares_of(const Recipe& recipe, std::int64_t world_size) {
  if (recipe.virtual_workers > 0) return recipe.virtual_workers;
  return world_size / (axis_size(recipe, "tp") * axis_size(recipe, "pp"));
}

std::int64_t passes_of(const Options& options, const Recipe& recipe) {
  const std::int64_t accumulate = options.integer("accumulate", 1, INT64_MAX);
  const int stages = axis_size(recipe, "pp");
  if (stages == 1) return accumulate;
  if (accumulate > 1) options.refuse("accumulate", "1 beside --pipeline; choose --micro-batches");
  return options.has("micro-batches") ? options.integer("micro-batches", 1, 1 << 20) : 4 * stages;
}

void read_devices(const Options& options, Recipe& recipe) {
  recipe.update_on_host = options.choice("update-on", {"device", "host"}) == "host";
  if (!options.has("devices")) {
    if (recipe.update_on_host) options.refuse("update-on", "--devices beside it");
    return;
  }
  recipe.devices = device_names(options);
  if (recipe.device != "auto") options.refuse("device", "nothing beside --devices, which names them");
  if (recipe.virtual_workers > 0)
    options.refuse("devices",
                   "nothing beside --virtual-workers, whose parts are computed one after the other");
  if (!recipe.mesh.empty())
    options.refuse("devices", "nothing beside --tensor and --pipeline, whose messages belong to one thread");
  if (recipe.shard == ShardStage::parameters)
    options.refuse("devices", "nothing beside --shard parameters, which are whole on one device at a time");
  if (recipe.sync_batch_norm)
    options.refuse("sync-batch-norm", "nothing beside --devices, where each device has its statistics");
  const auto count = static_cast<std::int64_t>(recipe.devices.size());
  if (recipe.batch.per_worker < count) {
    throw UsageError(
        fmt::format("--devices: expected at least one sample of a pass for each of {} devices, got {}; "
                    "use a larger batch",
                    count, recipe.batch.per_worker));
  }
  if (recipe.graphs == GraphUse::on)
    options.refuse("cuda-graph", "auto or off beside --devices, since a graph is of one device");
}

}  // namespace dtrain
