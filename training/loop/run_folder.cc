#include "training/loop/run_folder.h"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"
#include "runtime/base/files/durable_file.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;

// True when the run in `folder` was begun by the launch that started this process.
bool is_of_launch(const fs::path& folder, const std::string& launch) {
  std::ifstream in(folder / "config.json");
  const auto json = nlohmann::json::parse(in, nullptr, false);
  return json.is_object() && json.value("launch_time_ns", "") == launch;
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

void check_identity(const Checkpoint& checkpoint, const TrainConfig& config) {
  // Whether the batch of a step or that of a worker is fixed decides what more workers mean: it must not
  // change.
  const char* other = config.batch.grows_with_world ? "global-batch-size" : "batch-size";
  const auto other_saved = checkpoint.state.extra.find(other);
  if (other_saved != checkpoint.state.extra.end()) {
    throw UsageError(
        fmt::format("--{0}: the checkpoint {1} was made with --{0} {2}, expected the same, got none; use "
                    "another --run-dir for a new run",
                    other, checkpoint.path.string(), other_saved->second));
  }
  for (const auto& [name, value] : identity(config)) {
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

fs::path choose_run_dir(const TrainConfig& config, const Environment& environment) {
  if (config.run_dir) return *config.run_dir;
  const auto launch = environment.find(kLaunchTimeVariable);
  const auto nanoseconds = launch == environment.end() ? std::nullopt : parse_integer(launch->second);
  if (!nanoseconds) return RunDirectory::default_path(config.model, std::time(nullptr));
  const auto started = static_cast<std::time_t>(*nanoseconds / 1'000'000'000);
  for (const auto& entry : fs::exists("runs") ? fs::directory_iterator("runs") : fs::directory_iterator()) {
    if (is_of_launch(entry.path(), launch->second)) return entry.path();
  }
  return RunDirectory::default_path(config.model, started);
}

std::unique_ptr<CheckpointStore> lock_run(const TrainConfig& config, const RunDirectory& run,
                                          const WritePermit& permit, Log& log) {
  auto store = std::make_unique<CheckpointStore>(run.checkpoints(), config.keep_checkpoints, log);
  store->write_by(permit);
  try {
    make_directories(run.checkpoints());
    // The other ranks wait for us meanwhile, for connect_timeout: ours must be the first word.
    const Duration wait = std::min(default_lock_wait(run.checkpoints()), config.connect_timeout * 3 / 4);
    store->begin_writing(0, Deadline::after(wait));
  } catch (const UsageError& error) {
    throw UsageError(std::string("--run-dir: ") + error.what());
  } catch (const SystemError& error) {
    throw with_context("--run-dir", error);
  }
  return store;
}

std::optional<Checkpoint> find_checkpoint(const TrainConfig& config, const RunDirectory& run,
                                          const CheckpointTest& unusable, Log& log) {
  const CheckpointStore own(run.checkpoints(), 0, log);
  const bool has_own = !own.list().empty();
  if (config.resume.kind == ResumeFrom::Kind::nothing) {
    if (has_own) {
      throw UsageError(
          fmt::format("--resume never: {} holds checkpoints of an earlier run; use another --run-dir, or "
                      "--resume auto to resume",
                      run.path().string()));
    }
    return std::nullopt;
  }
  std::optional<Checkpoint> found;
  if (has_own || config.resume.kind == ResumeFrom::Kind::newest) {
    if (!has_own) return std::nullopt;
    found = newest_in(run.checkpoints(), unusable, log);
  } else {
    const fs::path asked(config.resume.path);
    if (!fs::is_directory(asked))
      throw UsageError(fmt::format(
          "--resume {}: expected auto, never, or a run or checkpoint folder; there is none", asked.string()));
    found = is_checkpoint(asked)
                ? usable_at(asked, unusable)
                : newest_in(fs::exists(asked / "checkpoints") ? asked / "checkpoints" : asked, unusable, log);
  }
  check_identity(*found, config);
  return found;
}

}  // namespace dtrain
