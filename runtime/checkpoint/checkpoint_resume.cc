// Which of the checkpoints a run resumes from, and what becomes of those that it does not follow: set aside
// by a name of their own, never deleted.
#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/check.h"
#include "runtime/base/files/durable_file.h"
#include "runtime/checkpoint/checkpoint_files.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;

// A name that is free: "name", "name-2", …
fs::path free_name(const fs::path& name) {
  fs::path result = name;
  for (int copy = 2; name_taken(result); ++copy) result = name.string() + "-" + std::to_string(copy);
  return result;
}

}  // namespace

// Empty when the checkpoint is refused, which is then the last in `refused`, or has vanished.
std::optional<Checkpoint> CheckpointStore::try_load(const CheckpointEntry& entry,
                                                    const RunGenerations& generations,
                                                    const CheckpointTest& unusable,
                                                    std::vector<RefusedCheckpoint>& refused) const {
  const auto refuse = [&](const char* reason, const std::string& why) {
    if (!name_taken(entry.path)) return;  // a writer has removed it since the folder was listed
    log_->write(LogLevel::warning, fmt::format("checkpoint refused, trying the one before: {}", why));
    refused.push_back({entry.step, entry.path, reason, why});
  };
  try {
    Checkpoint checkpoint = load_checkpoint(entry.path);
    if (checkpoint.state.step != entry.step) {
      throw DataError(entry.path.string(), -1, fmt::format("a checkpoint of step {}", entry.step),
                      fmt::format("step {} inside", checkpoint.state.step));
    }
    const std::int64_t start = start_of(checkpoint.state);
    const std::int64_t later = generations.superseded_by(start, entry.step);
    if (later > 0) {
      refuse("superseded", fmt::format("{}: start {} of the run wrote it after start {} had resumed from an "
                                       "earlier one; to use it, resume from its path",
                                       entry.path.string(), start, later));
      return std::nullopt;
    }
    const auto objection = unusable ? unusable(checkpoint) : std::nullopt;
    if (!objection) return checkpoint;
    refuse(kDiverged, fmt::format("{}: {}", entry.path.string(), *objection));
  } catch (const DataError& error) {
    refuse("damaged", error.what());
  } catch (const SystemError& error) {
    if (error.error_number() != EIO) {
      throw with_context(
          fmt::format("checkpoint {} may be good but cannot be read, so no older one was taken; nothing "
                      "was changed; fix the cause and start again",
                      entry.path.string()),
          error);
    }
    refuse("unreadable", error.what());
  }
  return std::nullopt;
}

std::optional<Checkpoint> CheckpointStore::latest(const CheckpointTest& unusable) const {
  std::vector<RefusedCheckpoint> refused;
  const RunGenerations generations = RunGenerations::read(directory_);
  const auto entries = list();
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    auto checkpoint = try_load(*entry, generations, unusable, refused);
    if (!checkpoint) continue;
    // The disk answers: what failed with EIO before may have been the way to it.
    for (std::size_t i = 0; i < refused.size(); ++i) {
      if (refused[i].reason != "unreadable") continue;
      std::vector<RefusedCheckpoint> again;
      auto newer = try_load({refused[i].step, refused[i].path}, generations, unusable, again);
      if (!newer) continue;
      newer->refused.assign(refused.begin(), refused.begin() + static_cast<std::ptrdiff_t>(i));
      return newer;
    }
    checkpoint->refused = std::move(refused);
    return checkpoint;
  }
  return std::nullopt;
}

std::int64_t CheckpointStore::resume_from(std::int64_t step, std::span<const RefusedCheckpoint> refused) {
  if (!lock_) begin_writing(0);
  permit_.check(fmt::format("resuming from step {} in {}", step, directory_.string()));
  // First of all: from here on nobody believes what an earlier start writes of later steps.
  start_ = RunGenerations::read(directory_).begin(directory_, step);
  set_aside_after(step, refused);
  return start_;
}

void CheckpointStore::set_aside_after(std::int64_t step, std::span<const RefusedCheckpoint> refused) {
  for (const auto& entry : list()) {
    if (entry.step <= step) continue;
    const auto found = std::ranges::find_if(refused, [&](const RefusedCheckpoint& one) {
      return one.step == entry.step && one.path.parent_path() == entry.path.parent_path();
    });
    const fs::path aside =
        set_aside(entry, found == refused.end() ? ".abandoned" : ".refused-" + found->reason);
    log_->write(
        LogLevel::warning,
        fmt::format("resuming from step {}: {} was set aside as {}; delete it when it is no longer needed",
                    step, entry.path.string(), aside.filename().string()));
  }
  sync_directory(directory_);
}

fs::path CheckpointStore::set_aside(const CheckpointEntry& entry, const std::string& suffix) {
  fs::path aside = free_name(entry.path.string() + suffix);
  check(Sys{::rename(entry.path.c_str(), aside.c_str())}, "rename " + entry.path.string());
  return aside;
}

std::optional<CheckpointEntry> CheckpointStore::refuse_from(std::int64_t step, const std::string& reason) {
  if (!lock_) begin_writing(0);
  permit_.check(fmt::format("setting checkpoints aside in {}", directory_.string()));
  std::optional<CheckpointEntry> newest;
  for (const auto& entry : list()) {
    if (entry.step < step) {
      newest = entry;
      continue;
    }
    const fs::path aside = set_aside(entry, ".refused-" + reason);
    log_->write(LogLevel::warning, fmt::format("{} was set aside as {}: training diverges after it",
                                               entry.path.string(), aside.filename().string()));
  }
  sync_directory(directory_);
  return newest;
}

}  // namespace dtrain
