// Writes checkpoints beside training: save() copies the tensors and returns, a thread writes the copy. Where
// several ranks hold parts of a checkpoint each has a writer of its own, and the commit is decided when all
// have written.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "runtime/base/clock.h"
#include "runtime/base/spans.h"
#include "runtime/checkpoint/checkpoint_store.h"

namespace dtrain {

/// Where the save in flight is.
enum class SaveStage {
  idle,      ///< there is none
  writing,   ///< this process' shard, or the commit, is on its way to the disk
  prepared,  ///< this process' shard is durable; commit or abandon is next
  failed,    ///< the error comes with the next call that may throw it
};

struct AsyncWriterOptions {
  SpanRecorder* spans = nullptr;  ///< where each write leaves a span; null: nowhere. Borrowed
  Shard shard = {};               ///< what this process is among those that save together; number 0 commits
  /// How long a write that the system refuses (SystemError) is tried again, with pauses, before it has
  /// failed.
  Duration patience = Duration::zero();
  /// Called in the writing thread before the first try of each write, and after the last. The first may
  /// throw, which is logged: the write goes on. The second must not.
  std::function<void()> begin_write = {}, end_write = {};
};

/// At most one checkpoint is in flight. All calls from one thread. Memory: one copy of what is saved, kept
/// for the next save.
///
/// One process that holds everything calls save(). Several ranks, each with a store that has begun
/// (begin_writing on rank 0, write_for on the others), do all of this in the same steps:
///
///     writer.prepare(snapshot, deadline);          // returns while the shard is being written
///     …train on; once in a while, together (max over ranks of 0: prepared, 1: failed, 2: writing):
///     if (worst == 0) writer.commit();
///     if (worst == 1) writer.abandon();
///     …before the next prepare and at the end the same, after
///     writer.wait_prepared(deadline);
///     writer.flush(deadline);                      // number 0: until the commit is durable
class AsyncCheckpointWriter {
 public:
  /// `store` is borrowed and must not be used for writing by anyone else while the writer lives; that of
  /// shard number 0 commits.
  explicit AsyncCheckpointWriter(CheckpointStore& store, AsyncWriterOptions options = {});
  /// Waits for the write in flight, however long the disk takes; an error nobody fetched goes to the store's
  /// log. What was prepared and not committed is abandoned.
  ~AsyncCheckpointWriter();
  AsyncCheckpointWriter(const AsyncCheckpointWriter&) = delete;
  AsyncCheckpointWriter& operator=(const AsyncCheckpointWriter&) = delete;

  /// For a writer of one shard: prepare, and commit as soon as it is prepared. Throws as prepare.
  void save(const Snapshot& snapshot, const Deadline& deadline);

  /// Copies everything `snapshot` refers to (one memcpy of it) and starts writing it; the tensors may change
  /// as soon as this returns. Waits first until the write before has ended. Throws that write's error, if it
  /// failed (`snapshot` is then not taken); SystemError(ETIMEDOUT) when `deadline` passes; UsageError as
  /// write_safetensors, or when what was prepared before was neither committed nor abandoned.
  void prepare(const Snapshot& snapshot, const Deadline& deadline);

  /// Does not wait and does not throw.
  SaveStage stage() const noexcept;

  /// Waits until this process' shard is durable. Throws as prepare, and UsageError when nothing was prepared.
  void wait_prepared(const Deadline& deadline);

  /// Every rank calls it once all are `prepared`: number 0 starts the commit, beside training, and tells of
  /// its failure as of that of a write; the others are done. Throws UsageError unless prepared.
  void commit();

  /// Every rank calls it when one of them has failed and none is writing: number 0 removes what the ranks
  /// have written, beside training; the others forget it. A rank that has failed keeps its error for the next
  /// call that throws. Throws UsageError while this process is writing.
  void abandon();

  /// Waits until the write in flight, shard or commit, has ended. Throws as prepare.
  void flush(const Deadline& deadline);

  /// Step of the newest checkpoint known to be durable, of number 0; empty before the first, and elsewhere.
  std::optional<std::int64_t> durable_step() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dtrain
