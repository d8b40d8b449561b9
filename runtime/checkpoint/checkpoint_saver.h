// Saves checkpoints in the background: save() copies the tensors and returns, a thread writes the copy. Where
// several processes each hold a shard, all of them write theirs, and number 0 commits once all shards are on
// the disk. A disk that is slow or refuses costs checkpoints, never the training: one that is due is
// postponed until there is room for it.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>

#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "runtime/base/files/background_writer.h"
#include "runtime/base/spans.h"
#include "runtime/checkpoint/checkpoint_store.h"

namespace dtrain {

class TakenSnapshot;

struct CheckpointSaverOptions {
  Shard shard = {};  ///< what this process is among those that save together; number 0 commits
  /// Collective: the largest of the values that the processes pass (0: written, 1: failed, 2: being written),
  /// on all of them. Each answers while its disk is slow. Null: this process saves, and waits, alone; needed
  /// for more than one shard.
  std::function<std::int64_t(std::int64_t)> max_over_ranks = {};
  SpanRecorder* spans = nullptr;  ///< where each write leaves a span; null: nowhere. Borrowed
  /// How long a write that the system refuses (SystemError) is tried again, with pauses, before it has
  /// failed.
  Duration patience = Duration::zero();
  /// Called in the writing thread before the first try of each write, and after the last. The first may
  /// throw, which is logged: the write happens all the same. The second must not.
  std::function<void()> begin_write = {}, end_write = {};
  /// Hears of each save that failed, in the training thread; must not throw. Null: a warning in the log.
  std::function<void(const Error&)> on_failure = {};
};

/// One process'. At most one checkpoint is in flight. All calls from one thread, and, with several shards, on
/// all processes in the same order. Memory: one copy of what is saved, kept for the next save; none of
/// save_in_place().
///
///     CheckpointSaver saver(&store, log);               // of a process that holds everything
///     …each step:  saver.poll();
///     …when due:   if (saver.free()) saver.save(snapshot); else saver.postpone(step);
///     …at the end: saver.drain(); saver.check();        // durable, or why it is not
class CheckpointSaver {
 public:
  /// `store` and `log` are borrowed; with several shards the store has begun to write (begin_writing, or
  /// write_for where it is not number 0's). No one else may use it for writing while the saver lives. Null: a
  /// rank that saves nothing, and only waits with the others in drain().
  CheckpointSaver(CheckpointStore* store, Log& log, CheckpointSaverOptions options = {});
  /// Waits for the write in flight, however long the disk takes; a failure that nobody heard of goes to the
  /// log. Shards that were not committed are removed.
  ~CheckpointSaver();
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  /// Whether save() would begin at once: nothing is on its way to the disk. The same on all ranks with
  /// several shards.
  bool free() const;
  /// Copies everything `snapshot` refers to (one memcpy of it) and begins to write it; the tensors may change
  /// when it returns. Waits for the write before, unless free(); with several shards it must be. Throws
  /// UsageError for what cannot be written, and as wait().
  void save(const Snapshot& snapshot, const Deadline& deadline = Deadline::never());
  /// As save(), without the copy: `owner` keeps alive what `snapshot` refers to, which nobody changes any
  /// more.
  void save_in_place(const Snapshot& snapshot, std::shared_ptr<const void> owner,
                     const Deadline& deadline = Deadline::never());
  /// The checkpoint of `step` is due and not free() to be taken: says so, and asks for another.
  void postpone(std::int64_t step);
  /// Whether a checkpoint was postponed, or the last one failed.
  bool owes() const noexcept { return owed_; }
  /// Whether that is so and another should be taken now. Only number 0 asks; the answer goes to all where
  /// there are several shards.
  bool wants_save() const;

  /// Between steps: a save that all processes have written becomes a checkpoint, one that failed is reported.
  /// Costs nothing while there is none, and a max_over_ranks while processes save together.
  void poll();
  /// Waits until nothing is on its way from here to the disk. Throws SystemError(ETIMEDOUT) when `deadline`
  /// passes.
  void wait(const Deadline& deadline);
  /// Collective with max_over_ranks. Waits until nothing is on its way to any disk and `busy` (may be null)
  /// is false on every rank. A rank that waits answers the others, so that a peer that is lost is noticed as
  /// in a step. Throws as max_over_ranks.
  void drain(const std::function<bool()>& busy = {});
  /// Throws the error of the last save that has ended, if that failed: SystemError where it is this
  /// process', Error elsewhere.
  void check();

  /// Step of the newest checkpoint known to be durable, of number 0; empty before the first, and elsewhere.
  std::optional<std::int64_t> durable_step() const;

 private:
  enum class Phase { none, shards, ending };

  bool leads() const noexcept { return store_ != nullptr && options_.shard.index == 0; }
  bool sharded() const noexcept { return options_.shard.count > 1; }
  bool writing() const { return writer_ && !writer_->idle(); }
  std::int64_t own_state() const;
  bool begin_save(const Snapshot& snapshot, const Deadline& deadline);
  void write_taken();
  void post(const char* span, const BackgroundWriter::Entry& write, Duration patience);
  /// With several shards: what all processes have said moves the save on.
  void advance(std::int64_t worst);
  void end_shards(bool failed);
  void take_failure();
  void report_failure();
  void fail(const std::exception_ptr& error);

  CheckpointStore* store_;
  Log& log_;
  CheckpointSaverOptions options_;
  std::unique_ptr<TakenSnapshot> taken_;  ///< the writing thread's while that is not idle
  Phase phase_ = Phase::none;             ///< of a save that processes make together; equal on all of them
  bool failing_ = false;                  ///< what phase_ ends was not written by all
  std::int64_t step_ = 0;                 ///< of the save begun last
  TimePoint begun_at_{};
  std::exception_ptr failure_;  ///< of the save begun last
  bool reported_ = true;        ///< failure_ was
  bool owed_ = false;
  TimePoint owed_from_{};
  std::atomic<std::int64_t> durable_ = -1;
  std::unique_ptr<BackgroundWriter> writer_;  ///< last: its thread uses the above; null without a store
};

}  // namespace dtrain
