#include "training/run/run_recorder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/base/files/durable_file.h"
#include "runtime/metrics/report.h"
#include "training/log/machine.h"
#include "training/use/saved_run.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kLaunchVariable = "DTRAIN_LAUNCH_TIME_NS";

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Where progress is drawn: on our own standard output, or, when the launcher relays a terminal, on standard
// error, where it expects updates.
struct ProgressTarget {
  int fd;
  ProgressOptions options;
};

ProgressTarget progress_target(const Environment& environment) {
  if (find_variable(environment, "DTRAIN_STDERR_TTY") == nullptr) {
    return {STDOUT_FILENO, progress_options_for(STDOUT_FILENO, environment)};
  }
  const std::string* columns = find_variable(environment, "DTRAIN_COLUMNS");
  const auto width = columns != nullptr ? parse_integer(*columns).value_or(80) : 80;
  ProgressOptions options;
  options.terminal = true;
  options.width = [width] { return static_cast<int>(width); };
  return {STDERR_FILENO, options};
}

std::string config_json(const Options& options, const Environment& environment, const TrainConfig& recipe,
                        std::span<const Field> fields, const Device& device, const Choices& choices) {
  nlohmann::json config;
  for (const auto& [name, value] : options.all())
    config["options"][name] = {{"value", value.text}, {"source", value.source}};
  config["identity"] = identity(recipe);
  config["fields"] = nlohmann::json::parse(fields_json(fields));
  config["device"] = device.name();
  config["emulated"] = device.is_emulated();
  config["global_batch_size"] = recipe.batch.global;
  config["batch_size_per_worker"] = recipe.batch.per_worker;
  config["accumulate"] = recipe.batch.accumulate;
  config["lr"] = lr_of(recipe.optimizer.rule);
  if (!choices.empty()) config["chosen"] = choices;
  const MachineNote machine = note_machine();
  config["machine"] = {{"host", machine.host},
                       {"system", machine.system},
                       {"processor", machine.processor},
                       {"cores", machine.cores},
                       {"memory_bytes", machine.memory_bytes}};
  if (const std::string* launch = find_variable(environment, kLaunchVariable)) {
    config["launch_time_ns"] = *launch;
  }
  return config.dump(2);
}

std::string summary_json(const RunSummary& summary) {
  nlohmann::json json = {{"status", summary.status},
                         {"start", summary.start},
                         {"steps", summary.steps},
                         {"epochs", summary.epochs},
                         {"world_size", summary.world_size},
                         {"loss", summary.loss},
                         {"samples_per_second", summary.samples_per_second},
                         {"seconds", summary.seconds},
                         {"device", summary.device},
                         {"emulated", summary.emulated},
                         {"resumed_from_step", summary.resumed_from_step},
                         {"allocated_bytes", summary.memory.allocated_bytes},
                         {"peak_allocated_bytes", summary.memory.peak_allocated_bytes},
                         {"resident_bytes", summary.memory.resident_bytes},
                         {"peak_resident_bytes", summary.memory.peak_resident_bytes},
                         {"phase_milliseconds_per_step", summary.phase_milliseconds}};
  if (summary.delays) json["staleness"] = nlohmann::json::parse(summary.delays->text());
  if (summary.evaluation) {
    json["test"] = {{"loss", summary.evaluation->loss}, {"samples", summary.evaluation->samples}};
    for (const auto& [name, value] : summary.evaluation->metrics) json["test"][name] = value;
  }
  if (summary.seconds_to_first_step) json["seconds_to_first_step"] = *summary.seconds_to_first_step;
  return json.dump(2);
}

// True when the run in `folder` was begun by the launch that started this process.
bool is_of_launch(const fs::path& folder, const std::string& launch) {
  std::ifstream in(folder / "config.json");
  const auto config = nlohmann::json::parse(in, nullptr, false);
  return config.is_object() && config.value("launch_time_ns", "") == launch;
}

bool is_checkpoint(const fs::path& path) { return fs::exists(path / "state.json"); }

Checkpoint newest_in(const fs::path& folder, const CheckpointTest& unusable, Log& log) {
  const CheckpointStore store(folder, 0, log);
  auto found = store.latest(unusable);
  if (!found)
    throw DataError(folder.string(), -1, "a checkpoint that verifies and whose numbers are finite",
                    store.list().empty() ? "none at all" : "only damaged or diverged ones");
  return std::move(*found);
}

Checkpoint usable_at(const fs::path& path, const CheckpointTest& unusable) {
  Checkpoint checkpoint = load_checkpoint(path);
  if (const auto objection = unusable(checkpoint))
    throw DataError(path.string(), -1, "a checkpoint whose numbers are finite", *objection);
  return checkpoint;
}

void check_identity(const Checkpoint& checkpoint, const TrainConfig& recipe) {
  // Whether the batch of a step or that of a worker is fixed decides what more workers mean: it must not
  // change.
  const char* other = recipe.batch.grows_with_world ? "global-batch-size" : "batch-size";
  const auto other_saved = checkpoint.state.extra.find(other);
  if (other_saved != checkpoint.state.extra.end()) {
    throw UsageError(
        fmt::format("--{0}: the checkpoint {1} was made with --{0} {2}, expected the same, got none; use "
                    "another --run-dir for a new run",
                    other, checkpoint.path.string(), other_saved->second));
  }
  for (const auto& [name, value] : identity(recipe)) {
    const auto saved = checkpoint.state.extra.find(name);
    if (saved != checkpoint.state.extra.end() && saved->second != value) {
      throw UsageError(
          fmt::format("--{}: the checkpoint {} was made with {}, expected the same, got {}; use another "
                      "--run-dir for a new run",
                      name, checkpoint.path.string(), saved->second, value));
    }
  }
}

}  // namespace

RunRecorder::RunRecorder(const RunDirectory& run, const Options& options, const Environment& environment,
                         const TrainConfig& recipe, std::span<const Field> fields, const Device& device,
                         const Choices& choices, std::int64_t start, std::int64_t resumed_step)
    : run_(run),
      metrics_((run.write_config(config_json(options, environment, recipe, fields, device, choices)),
                run.metrics()),
               start),
      curves_(run.path(), unix_seconds(), resumed_step),
      progress_(progress_target(environment).fd, progress_target(environment).options) {
  metrics_.truncate_after(resumed_step, Starts::read(run.checkpoints()));
}

void RunRecorder::show(Scribe& scribe, const Progress& progress) {
  scribe.post([this, progress] { progress_.update(progress); });
}

void RunRecorder::curve(Scribe& scribe, std::string tag, double value, std::int64_t step, double now) {
  scribe.post([this, tag = std::move(tag), value, step, now] { curves_.scalar(tag, value, step, now); });
}

void RunRecorder::step(Scribe& scribe, StepRecord step) {
  const double now = unix_seconds();
  step.time = now;
  scribe.post([this, step] { metrics_.write(step); });
  curve(scribe, "train/loss", step.loss, step.step, now);
  curve(scribe, "train/lr", step.lr, step.step, now);
  curve(scribe, "train/samples_per_second", step.samples_per_second, step.step, now);
  if (!step.memory) return;
  curve(scribe, "memory/allocated_bytes", static_cast<double>(step.memory->allocated_bytes), step.step, now);
  curve(scribe, "memory/resident_bytes", static_cast<double>(step.memory->resident_bytes), step.step, now);
}

void RunRecorder::evaluation(Scribe& scribe, const EvalRecord& evaluation, std::int64_t step) {
  const double now = unix_seconds();
  scribe.post([this, evaluation] { metrics_.write(evaluation); });
  curve(scribe, "test/loss", evaluation.loss, step, now);
  std::string found;
  for (const auto& [name, value] : evaluation.metrics) {
    curve(scribe, "test/" + name, value, step, now);
    found += fmt::format("test {} {:.4f}, ", name, value);
  }
  scribe.post(
      [this, text = fmt::format("epoch {}: {}test loss {:.4f} ({} samples)", evaluation.epoch + 1, found,
                                evaluation.loss, evaluation.samples)] { progress_.result(text); });
}

void RunRecorder::epoch(Scribe& scribe, EpochRecord epoch) {
  epoch.time = unix_seconds();
  scribe.post([this, epoch] { metrics_.write(epoch); });
  curve(scribe, "train/seconds_per_epoch", epoch.seconds, epoch.step, epoch.time);
}

void RunRecorder::phases(Scribe& scribe, PhasesRecord phases) {
  phases.time = unix_seconds();
  scribe.post([this, phases] { metrics_.write(phases); });
}

void RunRecorder::finish(const RunSummary& summary) {
  progress_.finish();
  run_.write_summary(summary_json(summary));
  write_report(run_);
}

fs::path choose_run_dir(const TrainConfig& recipe, const Environment& environment) {
  if (recipe.run_dir) return *recipe.run_dir;
  const auto launch = environment.find(kLaunchVariable);
  const auto nanoseconds = launch == environment.end() ? std::nullopt : parse_integer(launch->second);
  if (!nanoseconds) return RunDirectory::default_path(recipe.model, std::time(nullptr));
  const auto started = static_cast<std::time_t>(*nanoseconds / 1'000'000'000);
  for (const auto& entry : fs::exists("runs") ? fs::directory_iterator("runs") : fs::directory_iterator()) {
    if (is_of_launch(entry.path(), launch->second)) return entry.path();
  }
  return RunDirectory::default_path(recipe.model, started);
}

std::unique_ptr<CheckpointStore> lock_run(const TrainConfig& recipe, const RunDirectory& run,
                                          const WritePermit& permit, Log& log) {
  auto store = std::make_unique<CheckpointStore>(run.checkpoints(), recipe.keep_checkpoints, log);
  store->write_by(permit);
  try {
    make_directories(run.checkpoints());
    // The other ranks wait for us meanwhile, for connect_timeout: ours must be the first word.
    const Duration wait = std::min(default_lock_wait(run.checkpoints()), recipe.connect_timeout * 3 / 4);
    store->begin_writing(0, Deadline::after(wait));
  } catch (const UsageError& error) {
    throw UsageError(std::string("--run-dir: ") + error.what());
  } catch (const SystemError& error) {
    throw with_context("--run-dir", error);
  }
  return store;
}

std::optional<Checkpoint> find_checkpoint(const TrainConfig& recipe, const RunDirectory& run,
                                          const CheckpointTest& unusable, Log& log) {
  const CheckpointStore own(run.checkpoints(), 0, log);
  const bool has_own = !own.list().empty();
  if (recipe.resume.kind == ResumeFrom::Kind::nothing) {
    if (has_own) {
      throw UsageError(
          fmt::format("--resume never: {} holds checkpoints of an earlier run; use another --run-dir, or "
                      "--resume auto to go on",
                      run.path().string()));
    }
    return std::nullopt;
  }
  std::optional<Checkpoint> found;
  if (has_own || recipe.resume.kind == ResumeFrom::Kind::newest) {
    if (!has_own) return std::nullopt;
    found = newest_in(run.checkpoints(), unusable, log);
  } else {
    const fs::path asked(recipe.resume.path);
    if (!fs::is_directory(asked))
      throw UsageError(fmt::format(
          "--resume {}: expected auto, never, or a run or checkpoint folder; there is none", asked.string()));
    found = is_checkpoint(asked)
                ? usable_at(asked, unusable)
                : newest_in(fs::exists(asked / "checkpoints") ? asked / "checkpoints" : asked, unusable, log);
  }
  check_identity(*found, recipe);
  return found;
}

}  // namespace dtrain
