// A folder of checkpoints, each complete or absent whatever kills the writer. A checkpoint is a directory
// `step-00000040/` with model.safetensors, optimizer.safetensors and state.json; see docs/decisions/006.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/log.h"
#include "runtime/checkpoint/named_view.h"
#include "runtime/checkpoint/tensor_files.h"
#include "runtime/checkpoint/training_state.h"

namespace dtrain {

/// What is saved: borrowed views, see NamedView. `model` holds state_dict names only; `optimizer` names are
/// "<parameter>.<state>", e.g. "conv1.weight.momentum_buffer".
struct Snapshot {
  TrainingState state;
  std::vector<NamedView> model;
  std::vector<NamedView> optimizer;
};

/// A checkpoint that could not be used when it was looked at.
struct RefusedCheckpoint {
  std::int64_t step = 0;
  std::filesystem::path path;
  std::string reason;   ///< for its name when it is set aside: "damaged" or "unreadable"
  std::string message;  ///< what the error said
};

/// A checkpoint. Its tensors are read when they are asked for, from files that stay open as long as this
/// object.
struct Checkpoint {
  std::filesystem::path path;
  TrainingState state;
  TensorFiles model;
  TensorFiles optimizer;
  std::vector<RefusedCheckpoint> refused = {};  ///< newer ones that latest() passed over
};

/// A checkpoint directory's step and path; nothing is said about what is inside.
struct CheckpointEntry {
  std::int64_t step = 0;
  std::filesystem::path path;
};

/// What load_checkpoint reads.
enum class CheckValues {
  all,    ///< every byte
  later,  ///< headers and state.json: the caller does TensorFiles::check_values, or reads whole tensors
};

/// Opens the checkpoint directory `path` and verifies it. Throws DataError (path, offset, expected, found)
/// for a damaged one, SystemError for one that could not be read in several tries, which says nothing about
/// its content: only a lasting EIO is damage, of the disk. Any rank may call it.
Checkpoint load_checkpoint(const std::filesystem::path& path, CheckValues check = CheckValues::all);

/// How long begin_writing waits for another writer when it is not told: a process that was killed lets go of
/// the lock at once on a local file system (10 s), but that of a dead NFS client is kept by the server until
/// its lease has ended, about 90 s (100 s).
Duration default_lock_wait(const std::filesystem::path& directory);

/// After how long the log says for whom begin_writing waits.
inline constexpr Duration kSayLockHolderAfter = std::chrono::seconds(5);

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

  /// Makes this the one writer: creates the folder, takes the lock (waiting for another writer until
  /// `deadline`, and telling the log for whom after `say_after`), and only then touches anything: checks that
  /// the folder can be written and has room for `bytes_needed`, removes what dead writers left. The writer
  /// may call it again, to check for more room. save() does it when the caller did not. Throws UsageError
  /// when a file is in the way, SystemError when the folder is read-only, full, or still written by somebody
  /// else at the deadline (EBUSY, with its name).
  void begin_writing(std::uint64_t bytes_needed, const Deadline& deadline,
                     Duration say_after = kSayLockHolderAfter);
  /// The same with default_lock_wait.
  void begin_writing(std::uint64_t bytes_needed);

  /// Writes a checkpoint of `snapshot` and returns its path once it is durable; then removes the oldest ones
  /// over `keep`, never one of a later step. Replaces one of the same step. Throws UsageError for a snapshot
  /// that cannot be written, SystemError when the disk refuses; what was there before is then intact.
  std::filesystem::path save(const Snapshot& snapshot);

  /// Every checkpoint in the folder by step, oldest first; empty when there is no folder.
  std::vector<CheckpointEntry> list() const;

  /// See load_checkpoint.
  Checkpoint load(const std::filesystem::path& path) const { return load_checkpoint(path); }

  /// The newest checkpoint that verifies completely. Newer ones that are damaged (DataError), or lie on
  /// sectors that cannot be read (EIO in every try, and once more after an older one was read), are passed
  /// over: reported to the log as a warning with the reason, and listed in the result. Empty when none is
  /// good. Throws SystemError when one cannot be read for any other reason (ESTALE, EMFILE, EACCES, …) in
  /// several tries: it may be perfectly good, so an older one must not be taken for the newest.
  std::optional<Checkpoint> latest() const;

  /// Call it when going on after `step`: checkpoints of later steps lose their names, or they would be taken
  /// for the newest next time. They are renamed to step-00000060.refused-<reason> where `refused`, which
  /// latest() gave, has them, else to step-00000060.abandoned, and never deleted: that is for whoever looked
  /// at them. The caller must be the writer. Throws SystemError.
  void set_aside_after(std::int64_t step, std::span<const RefusedCheckpoint> refused = {});

 private:
  void clean_leftovers();
  std::optional<Checkpoint> try_load(const CheckpointEntry& entry,
                                     std::vector<RefusedCheckpoint>& refused) const;
  void publish(const std::filesystem::path& staged, const std::filesystem::path& final_path);
  void prune(std::int64_t just_saved);
  void discard(const std::vector<std::filesystem::path>& victims);

  std::filesystem::path directory_;
  int keep_;
  Log* log_;
  UniqueFd lock_;
};

}  // namespace dtrain
