// A folder of checkpoints, each complete or absent whatever kills the writers. A checkpoint is a directory
// `step-00000040/` with model.safetensors, optimizer.safetensors and state.json, or, where several ranks hold
// a part, with numbered files and an index of each; see docs/decisions/006.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/files/write_permit.h"
#include "runtime/base/log.h"
#include "runtime/checkpoint/named_view.h"
#include "runtime/checkpoint/run_generations.h"
#include "runtime/checkpoint/tensor_files.h"
#include "runtime/checkpoint/training_state.h"

namespace dtrain {

/// What one process saves: borrowed views, see NamedView. `model` holds state_dict names only; `optimizer`
/// names are "<parameter>.<state>", e.g. "conv1.weight.momentum_buffer". Together the snapshots of all shards
/// hold each element of each tensor exactly once; a rank with nothing to save has empty lists. How a job is
/// cut decides only the parts:
///
///  - Data parallelism (DDP): rank 0 has everything whole, the others nothing. One file, as without shards.
///  - ZeRO, FSDP: each rank has a range of each flattened parameter: TensorShard::elements.
///  - Tensor parallelism: each rank has its rows or columns: TensorShard::slice. What all ranks have alike
///    (norms) only the first of them saves. With ZeRO inside: TensorShard::slice(…).range(…).
///  - A pipeline: each stage has its own tensors, whole. Of a stage's replicas only the first saves.
///
/// `state` is rank 0's; of the other shards only its step is looked at.
struct Snapshot {
  TrainingState state;
  std::vector<NamedView> model;
  std::vector<NamedView> optimizer;
};

/// Which of the processes that save together this one is. Number 0 is the one that commits.
struct Shard {
  int index = 0;
  int count = 1;
};

/// A checkpoint that could not be used when it was looked at.
struct RefusedCheckpoint {
  std::int64_t step = 0;
  std::filesystem::path path;
  std::string reason;   ///< for its name when it is set aside: "damaged", "unreadable", "superseded", …
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

/// Says what keeps a checkpoint that verifies from being used; nothing: it can be.
using CheckpointTest = std::function<std::optional<std::string>(const Checkpoint&)>;

/// CheckpointTest's and refuse_from()'s reason: its numbers are not finite, or lead there.
inline constexpr const char* kDiverged = "diverged";

/// What load_checkpoint reads.
enum class CheckValues {
  all,    ///< every byte
  later,  ///< state.json and the index or header: the caller does TensorFiles::check_values, or reads whole
          ///< tensors
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

/// Readers (list, load, latest) touch nothing and may run on every rank; one process at a time commits, which
/// a lock file in the folder enforces. Not thread-safe.
///
/// Several ranks save one checkpoint in two phases; the agreement between them is the caller's, who knows how
/// to talk to the others (`all_agree` stands for that):
///
///     if (rank == 0) store.begin_writing(bytes_of_all_ranks);        // once, at the start
///     const std::string id = broadcast(rank == 0 ? store.writer_id() : "");
///     if (rank != 0) store.write_for(id);
///     …
///     store.prepare(snapshot, {rank, world});                        // every rank: its own files, durable
///     if (all_agree(prepared)) { if (rank == 0) store.commit(state, world); }
///     else if (rank == 0) store.abandon();                           // the checkpoint before is untouched
///
/// CheckpointSaver does the same in the background. Any number of ranks may resume: load_checkpoint on
/// each, with the path that rank 0's latest() gave, then TensorFiles::read of the parts it needs.
class CheckpointStore {
 public:
  /// Touches nothing yet. `directory` is usually RunDirectory::checkpoints(); `keep` is how many of the
  /// newest checkpoints stay, 0 for all; `log` is borrowed and must outlive the store. Throws UsageError when
  /// keep < 0.
  CheckpointStore(std::filesystem::path directory, int keep, Log& log);

  /// From now on nothing is written without it: what writes throws PeerError when it has ended.
  void write_by(const WritePermit& permit) noexcept { permit_ = permit; }

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

  /// What the ranks that write shards for this writer hand to write_for: other names than any writer before
  /// used, so that a rank of an earlier start that is not quite dead can not write into this one's
  /// checkpoints. Throws UsageError before begin_writing.
  const std::string& writer_id() const;

  /// Makes this store one that writes shards under the lock of another process, the one with that
  /// `writer_id`. Touches nothing. Every rank but the writer's calls it, before its first prepare; after a
  /// restart of the group with a new id.
  void write_for(std::string writer_id);

  /// Phase 1, on every rank of the group and in the same order: writes this process' shard where no reader
  /// looks, and returns when it is durable. Throws UsageError for a snapshot that cannot be written, or
  /// neither begin_writing nor write_for before; SystemError when the disk refuses: this shard's files are
  /// then removed, the other ranks' are there until commit or abandon.
  void prepare(const Snapshot& snapshot, const Shard& shard);

  /// Phase 2, by the writer alone and only when prepare has succeeded on all `shards` ranks: names the files,
  /// writes the indexes and, last, state.json, makes the checkpoint of `state.step` appear in one step, and
  /// prunes. Returns its path once it is durable. Replaces one of the same step, unless a later start of the
  /// run has written that: then this process has been left behind, and PeerError says so. Throws UsageError
  /// when the shards together do not hold each element of each tensor once, SystemError when the disk refuses
  /// or a shard cannot be seen from here; the save is then abandoned, and what was there before is intact.
  std::filesystem::path commit(const TrainingState& state, int shards);

  /// Drops the save that prepare began last; the writer alone calls it. What cannot be removed goes to the
  /// log.
  void abandon();

  /// prepare and commit of a single shard: writes a checkpoint of `snapshot` and returns its path once it is
  /// durable; then removes the oldest ones over `keep`, never one of a later step. Replaces one of the same
  /// step. Throws UsageError for a snapshot that cannot be written, SystemError when the disk refuses; what
  /// was there before is then intact.
  std::filesystem::path save(const Snapshot& snapshot);

  /// Every checkpoint in the folder by step, oldest first; empty when there is no folder.
  std::vector<CheckpointEntry> list() const;

  /// See load_checkpoint.
  Checkpoint load(const std::filesystem::path& path) const { return load_checkpoint(path); }

  /// The newest checkpoint that verifies completely. Newer ones that are damaged (DataError), lie on sectors
  /// that cannot be read (EIO in every try, and once more after an older one was read), or were made by a
  /// start of the run that a later one had superseded before that step (see RunGenerations), are passed over:
  /// reported to the log as a warning with the reason, and listed in the result. Empty when none is good.
  /// Throws SystemError when one cannot be read for any other reason (ESTALE, EMFILE, EACCES, …) in several
  /// tries: it may be perfectly good, so an older one must not be taken for the newest. One that `unusable`
  /// (may be empty) objects to is passed over likewise.
  std::optional<Checkpoint> latest(const CheckpointTest& unusable = {}) const;

  /// Checkpoints of `step` and later turned out to be of no use: they lose their names, as in resume_from(),
  /// for `step-00000060.refused-REASON`. Returns the newest that is left. The caller must be the writer.
  /// Throws SystemError.
  std::optional<CheckpointEntry> refuse_from(std::int64_t step, const std::string& reason);

  /// Call it when resuming from `step`, before anything else of the run is written: says so in starts.jsonl,
  /// and returns the number of this start, which belongs into all that is recorded; what is saved from now on
  /// has it (TrainingState::extra, kStartEntry). Checkpoints of later steps lose their names, or they would
  /// be taken for the newest next time. They are renamed to `step-00000060.refused-REASON` where `refused`,
  /// which latest() gave, has them, else to step-00000060.abandoned, and never deleted: that is for the
  /// person who looked at them. The caller must be the writer. Throws SystemError.
  std::int64_t resume_from(std::int64_t step, std::span<const RefusedCheckpoint> refused = {});

 private:
  void set_aside_after(std::int64_t step, std::span<const RefusedCheckpoint> refused);
  /// Renames `entry`; returns its new name.
  std::filesystem::path set_aside(const CheckpointEntry& entry, const std::string& suffix);
  void clean_leftovers();
  void sweep_staged();
  std::optional<Checkpoint> try_load(const CheckpointEntry& entry, const RunGenerations& generations,
                                     const CheckpointTest& unusable,
                                     std::vector<RefusedCheckpoint>& refused) const;
  void publish(const std::filesystem::path& final_path, std::int64_t step);
  std::filesystem::path replace(const std::filesystem::path& final_path, std::int64_t step);
  void refuse_a_later_starts(const std::filesystem::path& checkpoint, std::int64_t step) const;
  void prune(std::int64_t just_saved);
  void discard(const std::vector<std::filesystem::path>& victims);

  std::filesystem::path directory_;
  int keep_;
  Log* log_;
  WritePermit permit_;
  UniqueFd lock_;
  std::int64_t start_ = 0;        ///< of the run, to which what is saved belongs
  std::string writer_id_;         ///< empty: neither begin_writing nor write_for
  std::uint64_t saves_ = 0;       ///< prepare calls since; the same on every rank
  std::filesystem::path staged_;  ///< of the last of them; empty when it is not there any more
};

}  // namespace dtrain
