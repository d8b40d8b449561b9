// A folder of checkpoints, each complete or absent whatever kills the writer. A checkpoint is a directory
// `step-00000040/` with model.safetensors, optimizer.safetensors and state.json; see docs/decisions/006.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/log.h"
#include "runtime/checkpoint/named_view.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/checkpoint/training_state.h"

namespace dtrain {

/// What is saved: borrowed views, see NamedView. `model` holds state_dict names only; `optimizer` names are
/// "<parameter>.<state>", e.g. "conv1.weight.momentum_buffer".
struct Snapshot {
  TrainingState state;
  std::vector<NamedView> model;
  std::vector<NamedView> optimizer;
};

/// A checkpoint that verified completely. The views of the files live as long as this object.
struct Checkpoint {
  std::filesystem::path path;
  TrainingState state;
  SafetensorsFile model;
  SafetensorsFile optimizer;
};

/// A checkpoint directory's step and path; nothing is said about what is inside.
struct CheckpointEntry {
  std::int64_t step = 0;
  std::filesystem::path path;
};

/// Loads the checkpoint directory `path` and verifies every byte. Throws DataError (path, offset, expected,
/// found) or SystemError. Any rank may call it.
Checkpoint load_checkpoint(const std::filesystem::path& path);

/// Bytes on disk a checkpoint of `snapshot` takes, near enough to check for space.
std::uint64_t checkpoint_bytes(const Snapshot& snapshot);

/// Readers (list, load, latest) touch nothing and may run on every rank; one process at a time writes, which
/// a lock file in the folder enforces. Not thread-safe.
class CheckpointStore {
 public:
  /// Touches nothing yet. `directory` is usually RunDirectory::checkpoints(); `keep` is how many of the
  /// newest checkpoints stay, 0 for all; `log` is borrowed and must outlive the store. Throws UsageError when
  /// keep < 0.
  CheckpointStore(std::filesystem::path directory, int keep, Log& log);

  const std::filesystem::path& directory() const noexcept { return directory_; }
  Log& log() const noexcept { return *log_; }

  /// Makes this the one writer: creates the folder, checks that it can be written and has room for
  /// `bytes_needed`, takes the lock (waiting for a dying predecessor until `deadline`), removes what dead
  /// writers left. save() does it when the caller did not. Throws UsageError when a file is in the way,
  /// SystemError when the folder is read-only, full, or still written by somebody else at the deadline.
  void begin_writing(std::uint64_t bytes_needed, const Deadline& deadline);

  /// Writes a checkpoint of `snapshot` and returns its path once it is durable; then removes the oldest ones
  /// over `keep`. Replaces one of the same step. Throws UsageError for a snapshot that cannot be written,
  /// SystemError when the disk refuses; what was there before is then intact.
  std::filesystem::path save(const Snapshot& snapshot);

  /// Every checkpoint in the folder by step, oldest first; empty when there is no folder.
  std::vector<CheckpointEntry> list() const;

  /// See load_checkpoint.
  Checkpoint load(const std::filesystem::path& path) const { return load_checkpoint(path); }

  /// The newest checkpoint that verifies completely; each newer one that was refused is reported to the log
  /// as a warning with the reason. Empty when none is good.
  std::optional<Checkpoint> latest() const;

  /// Removes checkpoints of later steps than `step`: call it when resuming from an older one on purpose, or
  /// they would be taken for the newest next time. The caller must be the writer. Throws SystemError.
  void discard_after(std::int64_t step);

 private:
  void clean_leftovers();
  void lock(const Deadline& deadline);
  void publish(const std::filesystem::path& staged, const std::filesystem::path& final_path);
  void prune(std::int64_t just_saved);
  void discard(const std::vector<std::filesystem::path>& victims);

  std::filesystem::path directory_;
  int keep_;
  Log* log_;
  UniqueFd lock_;
};

}  // namespace dtrain
