#include "training/use/saved_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/data/fingerprint.h"
#include "runtime/metrics/run_directory.h"
#include "training/options/train_config.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr DType kDTypes[] = {DType::f32, DType::f64, DType::bf16, DType::i64, DType::i32,
                             DType::u8,  DType::f16, DType::i16,  DType::i8,  DType::boolean};

Json read_config(const fs::path& run) {
  const fs::path path = RunDirectory(run).config();
  std::ifstream in(path);
  if (!in) {
    throw UsageError(
        fmt::format("{}: expected a run directory, which has a config.json; there is none (give the "
                    "--run-dir of the training)",
                    run.string()));
  }
  Json config = Json::parse(in, nullptr, false);
  if (!config.is_object() || !config.contains("options") || !config["options"].is_object())
    throw DataError(path.string(), -1, "the configuration of a run, as dtrain writes it", "something else");
  return config;
}

bool is_known(std::span<const OptionSpec> specs, const std::string& name) {
  return std::any_of(specs.begin(), specs.end(), [&](const OptionSpec& spec) { return spec.name == name; });
}

/// The options of the run, checked against those the program has.
Options options_of(const TrainProgram& program, const Json& config, const fs::path& run) {
  const std::string path = RunDirectory(run).config().string();
  std::map<std::string, OptionValue> values;
  for (const auto& [name, option] : config["options"].items()) {
    if (!option.is_object() || !option.contains("value") || !option["value"].is_string())
      throw DataError(path, -1, fmt::format("a value for option {}", name), option.dump());
    const bool chosen = option.value("source", "") != "default";
    if (!is_known(program.options, name) && !is_known(train_options(), name)) {
      if (!chosen) continue;
      throw UsageError(fmt::format(
          "{}: expected a run of {}, got one with --{}, which {} does not have; use the program that made it",
          path, program.name, name, program.name));
    }
    values[name] = {option["value"].get<std::string>(), path};
  }
  fill_from_defaults(program.options, values);
  fill_from_defaults(train_options(), values);
  return Options(std::move(values));
}

void check_network(const std::string& found, const SavedRun& run, const fs::path& where) {
  if (found == run.task->name()) return;
  throw UsageError(
      fmt::format("{}: expected the network {}, got {}; use the program and the run that made it",
                  where.string(), run.task->name(), found));
}

/// Weights learned from other columns or classes, or from the same in another order, would give wrong
/// numbers.
void check_learned_fields(const SavedRun& run, const SavedWeights& weights) {
  const auto learned = from_entries(weights.identity);
  if (!learned) return;
  if (const std::string names = difference(learned->names, names_of_values(run.fields)); !names.empty()) {
    throw UsageError(fmt::format("{}: expected weights trained on the classes of {}, got others: {}",
                                 weights.path.string(), run.path.string(), names));
  }
  const bool known = std::any_of(run.fields.begin(), run.fields.end(),
                                 [](const Field& field) { return !field.columns.empty(); });
  const std::string fields = describe_with_columns(run.fields);
  if (!known || learned->fields == fields) return;
  throw UsageError(fmt::format("{}: expected weights trained on {}, got weights trained on {}",
                               weights.path.string(), fields, learned->fields));
}

std::vector<Field> fields_of(const SavedRun& run, const Json& config, Log& log) {
  if (config.contains("fields"))
    return parse_fields(config["fields"].dump(), RunDirectory(run.path).config());
  const Splits splits =
      run.task->open({.dataset = run.options.text("dataset"),
                      .data_dir = run.options.has("data-dir") ? run.options.text("data-dir") : "",
                      .log = &log});
  const auto fields = splits.train->fields();
  return {fields.begin(), fields.end()};
}

}  // namespace

std::string fields_json(std::span<const Field> fields) {
  Json json = Json::array();
  for (const Field& field : fields) {
    json.push_back({{"name", field.name},
                    {"dtype", name_of(field.dtype)},
                    {"shape", std::vector<std::int64_t>(field.shape.begin(), field.shape.end())},
                    {"values", field.values}});
    if (!field.columns.empty()) json.back()["columns"] = field.columns;
    if (!field.value_names.empty()) json.back()["value-names"] = field.value_names;
    if (!field.mean.empty()) {
      json.back()["mean"] = field.mean;
      json.back()["deviation"] = field.deviation;
    }
    if (!field.fill.empty()) json.back()["fill"] = field.fill;
    if (field.has_none) json.back()["has-none"] = true;
  }
  return json.dump();
}

std::vector<Field> parse_fields(const std::string& text, const fs::path& path) {
  std::vector<Field> fields;
  try {
    for (const Json& json : Json::parse(text)) {
      Field field{.name = json.at("name"), .values = json.at("values")};
      const Json& extents = json.at("shape");
      if (!std::all_of(extents.begin(), extents.end(),
                       [](const Json& each) { return each.is_number_integer(); }))
        throw DataError(path.string(), -1, "a shape of integers", extents.dump());
      const auto shape = extents.get<std::vector<std::int64_t>>();
      field.shape = Dims(std::span(shape));
      const std::string dtype = json.at("dtype");
      const auto known = std::find_if(std::begin(kDTypes), std::end(kDTypes),
                                      [&](DType each) { return name_of(each) == dtype; });
      if (known == std::end(kDTypes)) throw DataError(path.string(), -1, "a dtype", dtype);
      field.dtype = *known;
      if (json.contains("columns")) json.at("columns").get_to(field.columns);
      if (json.contains("value-names")) json.at("value-names").get_to(field.value_names);
      if (json.contains("mean")) {
        json.at("mean").get_to(field.mean);
        json.at("deviation").get_to(field.deviation);
      }
      if (json.contains("fill")) json.at("fill").get_to(field.fill);
      field.has_none = json.value("has-none", false);
      fields.push_back(std::move(field));
    }
  } catch (const Json::exception& error) {
    throw DataError(path.string(), -1, "fields with name, dtype, shape and values", error.what());
  }
  if (fields.empty()) throw DataError(path.string(), -1, "at least one field", "none");
  return fields;
}

std::string run_or_newest(const std::string& given, const std::string& example, Log& log) {
  if (!given.empty()) return given;
  const fs::path newest = newest_run();
  if (newest.empty())
    throw UsageError(
        fmt::format("expected a run directory first, as in {}, got none, and runs/ here has none", example));
  log.write(LogLevel::info, fmt::format("using {}, the newest run in runs/", newest.string()));
  return newest.string();
}

SavedRun open_run(const TrainProgram& program, const fs::path& path, Log& log) {
  const Json config = read_config(path);
  SavedRun run{path, options_of(program, config, path), nullptr, {}};
  run.task = program.make_task(run.options);
  if (config.contains("identity"))
    check_network(config["identity"].value("model", run.task->name()), run, RunDirectory(path).config());
  run.fields = fields_of(run, config, log);
  return run;
}

SavedWeights weights_of(const SavedRun& run, const std::string& checkpoint, Log& log) {
  SavedWeights weights =
      checkpoint.empty() ? open_weights(run.path, "run", log) : open_weights(checkpoint, "--checkpoint", log);
  const auto model = weights.identity.find("model");
  if (model != weights.identity.end()) check_network(model->second, run, weights.path);
  check_learned_fields(run, weights);
  return weights;
}

std::unique_ptr<Module> load_network(const SavedRun& run, const SavedWeights& weights,
                                     const std::shared_ptr<Device>& device) {
  Generator unused(0);
  auto network = run.task->build(run.fields, unused, device);
  load_weights(*network, weights, run.task->name());
  network->eval();
  return network;
}

}  // namespace dtrain
