#include "training/options/train_config.h"

#include <fmt/format.h>

#include <cmath>
#include <sstream>

#include "runtime/base/error.h"
#include "training/options/parallelism.h"

namespace dtrain {
namespace {

constexpr std::int64_t kNoLimit = INT64_MAX;
constexpr std::int64_t kEpochs = 10;

void check_global_batch(const BatchPlan& batch, std::int64_t world_size) {
  if (batch.global < world_size) {
    throw UsageError(
        fmt::format("--global-batch-size: expected at least one sample for each of {} workers, got {}",
                    world_size, batch.global));
  }
  if (batch.accumulate > 1 && batch.global % (world_size * batch.accumulate) != 0) {
    throw UsageError(
        fmt::format("--global-batch-size: expected a multiple of {} (workers) x {} (micro-batches), got {}; "
                    "use --batch-size to set the samples per worker instead",
                    world_size, batch.accumulate, batch.global));
  }
}

/// `world_size`: workers, or the parts that stand in their place.
BatchPlan make_batch(const Options& options, std::int64_t world_size, std::int64_t passes) {
  BatchPlan batch;
  batch.accumulate = passes;
  const std::int64_t parts = world_size * batch.accumulate;
  if (options.has("batch-size")) {
    options.read("batch-size", batch.per_worker);
    batch.global = batch.per_worker * parts;
    batch.grows_with_world = true;
  } else {
    batch.global = kGlobalBatch;
    options.read("global-batch-size", batch.global);
    check_global_batch(batch, world_size);
    batch.per_worker = (batch.global + parts - 1) / parts;
  }
  return batch;
}

double lr_scale(const std::string& rule, const TrainConfig& config) {
  const double ratio = static_cast<double>(config.batch.global) / static_cast<double>(config.base_batch_size);
  if (rule == "linear") return ratio;
  return rule == "sqrt" ? std::sqrt(ratio) : 1.0;
}

void read_trace(const Options& options, TrainConfig& config) {
  if (!options.has("trace")) return;
  const std::string& file = options.text("trace");
  if (file.empty()) options.refuse("trace", "a file or auto");
  config.trace.emplace();
  if (file != "auto") config.trace->file = file;
  if (!options.has("trace-steps")) return;
  const std::string& steps = options.text("trace-steps");
  const auto colon = steps.find(':');
  const auto first = parse_integer(steps.substr(0, colon));
  const auto last = colon == std::string::npos ? std::nullopt : parse_integer(steps.substr(colon + 1));
  if (!first || !last || *first < 1 || *last < *first)
    options.refuse("trace-steps", "A:B with 1 <= A <= B, as in 100:105");
  config.trace->first_step = first;
  config.trace->last_step = last;
}

std::vector<std::string> read_patterns(const Options& options) {
  std::vector<std::string> patterns;
  std::istringstream text(options.text("freeze"));
  for (std::string pattern; std::getline(text, pattern, ',');) {
    if (pattern.empty()) options.refuse("freeze", "names or patterns like conv1.*,bn1.*");
    patterns.push_back(pattern);
  }
  if (patterns.empty()) options.refuse("freeze", "names or patterns like conv1.*,bn1.*");
  return patterns;
}

WeightInit read_init(const Options& options, const TrainConfig& config) {
  WeightInit init = parse_weight_init(options.text("init"));
  if (!init)
    options.refuse(
        "init",
        "normal:STD, uniform:BOUND, xavier-uniform, xavier-normal, kaiming-uniform or kaiming-normal");
  if (!config.init_from.empty() && !config.init_partial)
    options.refuse("init",
                   "nothing with --init-from, whose weights would replace them (--init-partial: those it "
                   "has)");
  return init;
}

/// The options that a checkpoint must agree on, each value in one spelling.
std::map<std::string, std::string> identity_of(const Options& options) {
  std::map<std::string, std::string> settings;
  for (const OptionSpec& spec : train_options()) {
    if (spec.agreement != Agreement::identity) continue;
    const std::string name(spec.name);
    if (spec.value_name.empty()) {
      settings[name] = options.enabled(name) ? "true" : "false";
    } else if (options.has(name) && std::holds_alternative<WholeNumber>(spec.values)) {
      settings[name] = std::to_string(options.integer(name, INT64_MIN, INT64_MAX));
    } else {
      settings[name] = options.has(name) ? options.text(name) : "none";
    }
  }
  return settings;
}

}  // namespace

TrainConfig make_train_config(const Options& options, std::string_view model, std::int64_t world_size,
                              const TaskTraits& traits) {
  options.check(train_options());
  TrainConfig config;
  config.task = traits;
  read_train_flags(options, config);
  config.model = model;
  config.settings = identity_of(options);
  if (!config.device.starts_with("cuda:")) options.choice("device", {"auto", "cpu", "cuda"});
  config.autotune = options.text("autotune") == "on";
  if (options.has("init")) config.init = read_init(options, config);
  if (options.has("freeze")) config.freeze = read_patterns(options);
  config.epochs = config.max_steps ? kNoLimit : kEpochs;
  options.read("epochs", config.epochs);
  if (config.swa_from && *config.swa_from >= config.epochs)
    options.refuse("swa-from", fmt::format("less than the {} epochs of the run", config.epochs));
  read_parallelism(options, world_size, config);
  config.batch = make_batch(options, shares_of(config, world_size), passes_of(config));
  check_batch(config);
  config.optimizer = read_optimizer(options, config, lr_scale(options.text("scale-lr"), config));
  if (is_layerwise(config.optimizer.rule)) config.graphs = GraphUse::off;  // such steps cannot be recorded
  read_trace(options, config);
  return config;
}

LrSchedule make_schedule(const TrainConfig& config, std::int64_t steps_per_epoch) {
  LrSchedule schedule;
  schedule.kind = config.lr_kind;
  schedule.base_lr = lr_of(config.optimizer.rule);
  const auto steps_of = [&](double epochs) {
    return std::llround(epochs * static_cast<double>(steps_per_epoch));
  };
  schedule.warmup_steps = config.warmup_epochs ? steps_of(*config.warmup_epochs) : config.warmup_steps;
  schedule.warmup_from = config.warmup_from;
  for (const double epochs : config.lr_decay_at) schedule.decay_at.push_back(steps_of(epochs));
  schedule.total_steps = config.epochs == kNoLimit ? *config.max_steps : config.epochs * steps_per_epoch;
  schedule.decay_every = config.lr_decay_every;
  schedule.gamma = config.lr_gamma;
  schedule.min_lr = config.min_lr;
  schedule.power = config.lr_power;
  schedule.cooldown_steps = std::llround(config.lr_cooldown * static_cast<double>(schedule.total_steps));
  schedule.steps_per_epoch = steps_per_epoch;
  return schedule;
}

std::map<std::string, std::string> identity(const TrainConfig& config) {
  const BatchPlan& batch = config.batch;
  const std::int64_t size = batch.grows_with_world ? batch.per_worker * batch.accumulate : batch.global;
  std::map<std::string, std::string> settings = config.settings;
  settings.emplace("model", config.model);
  settings[batch.grows_with_world ? "batch-size" : "global-batch-size"] = std::to_string(size);
  // Sums within a kernel may depend on how many threads share it.
  if (config.virtual_workers > 0) settings.emplace("threads", std::to_string(config.threads));
  if (config.servers > 0 && config.update == ServerUpdate::async) settings.emplace("update", "async");
  return settings;
}

}  // namespace dtrain
