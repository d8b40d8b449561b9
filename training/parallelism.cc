#include "training/parallelism.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

constexpr std::int64_t kMostParts = 65'536;

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

std::vector<MeshAxis> mesh_of(const Options& options, std::int64_t tensor) {
  if (!options.has("mesh")) {
    if (tensor == 1) return {};
    return {{"dp", kAutoSize}, {"tp", static_cast<int>(tensor)}};
  }
  std::vector<MeshAxis> axes = parse_mesh(options.text("mesh"));
  for (const MeshAxis& axis : axes) {
    if (axis.name != "dp" && axis.name != "tp")
      options.refuse("mesh", "axes dp (batches are shared) and tp (layers are divided)");
  }
  return axes;
}

void read_mesh(const Options& options, std::int64_t world_size, Recipe& recipe) {
  const std::int64_t tensor = options.integer("tensor", 1, 4096);
  recipe.sequence_parallel = options.enabled("sequence-parallel");
  const std::vector<MeshAxis> axes = mesh_of(options, tensor);
  if (!axes.empty()) {
    const bool is_auto = !options.has("mesh");
    if (is_auto && world_size % tensor != 0) {
      throw UsageError(fmt::format("--tensor: expected a number that {} workers can be divided by, got {}",
                                   world_size, tensor));
    }
    const MeshShape shape(axes, static_cast<int>(world_size));
    if (tensor > 1 && shape.size("tp") != tensor)
      options.refuse("tensor", fmt::format("the {} of --mesh's tp, or no --tensor", shape.size("tp")));
    if (shape.size("tp") > 1) recipe.mesh = shape.axes();
  }
  if (recipe.mesh.empty()) {
    if (recipe.sequence_parallel)
      options.refuse("sequence-parallel", "--tensor N beside it, with N of 2 or more");
    return;
  }
  const auto beside = [&](bool given, const char* option, const char* why) {
    if (given) options.refuse(option, std::string("nothing beside --tensor, ") + why);
  };
  beside(recipe.virtual_workers > 0, "virtual-workers", "whose sums are over workers");
  beside(recipe.shard.has_value(), "shard", "which divides parameters in another way");
  beside(recipe.compress.kind != Compression::Kind::none, "compress", "whose slices are small already");
  beside(recipe.sync_batch_norm, "sync-batch-norm", "whose models have no batch norm");
  if (recipe.precision == Precision::fp16)
    options.refuse("precision", "fp32 or bf16 beside --tensor, whose workers would overflow one by one");
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

void read_sharding(const Options& options, Recipe& recipe) {
  recipe.compress = compression_named(options.text("compress"));
  const std::string& shard = options.choice("shard", {"none", "optimizer", "gradients"});
  if (shard == "optimizer") recipe.shard = ShardStage::optimizer;
  if (shard == "gradients") recipe.shard = ShardStage::gradients;
  if (recipe.shard && recipe.compress.kind != Compression::Kind::none)
    options.refuse("compress", "none beside --shard, whose gradients go to their owners whole");
}

}  // namespace

void read_parallelism(const Options& options, std::int64_t world_size, Recipe& recipe) {
  recipe.sync_batch_norm = options.enabled("sync-batch-norm");
  read_sharding(options, recipe);
  read_virtual_workers(options, world_size, recipe);
  read_mesh(options, world_size, recipe);
}

std::int64_t shares_of(const Recipe& recipe, std::int64_t world_size) {
  if (recipe.virtual_workers > 0) return recipe.virtual_workers;
  if (recipe.mesh.empty()) return world_size;
  return world_size / MeshShape(recipe.mesh, static_cast<int>(world_size)).size("tp");
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
    options.refuse("devices", "nothing beside --tensor, whose collectives belong to one thread");
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
