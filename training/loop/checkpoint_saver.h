// Who writes a checkpoint, and when it counts: rank 0 alone where it holds everything, else every rank its
// own part, beside training, and rank 0 the index when all parts are on the disk. A checkpoint appears whole
// or not at all. A disk that is slow or refuses costs checkpoints, never the training: one that is due is
// then put off until there is room for it.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "collectives/communicator.h"
#include "runtime/checkpoint/async_writer.h"

namespace dtrain {

/// What a saver borrows; all of it outlives the saver.
struct SaverContext {
  Communicator& communicator;
  Log& log;
  SpanRecorder* spans;                 ///< where writing leaves spans; may be null
  WritePermit permit;                  ///< without it nothing is written
  Duration start_patience;             ///< how long ranks wait for each other's word before training
  Duration patience;                   ///< the same later: each of them answers while its disk is slow
  bool in_step = true;                 ///< Strategy::in_step: without, no rank waits for another here
  std::filesystem::path mark;          ///< a file that is there while this process writes; empty: none
  std::function<void()> before_write;  ///< in the writing thread, before each write; may be null
};

/// One rank's; used by the training thread.
class CheckpointSaver {
 public:
  /// `locked`: on rank 0 the store that holds the run's lock, elsewhere null. `folder`: of the run's
  /// checkpoints, as this rank sees it. Throws SystemError when a rank that saves cannot see the folder.
  CheckpointSaver(std::unique_ptr<CheckpointStore> locked, const std::filesystem::path& folder, bool sharded,
                  const SaverContext& context);
  ~CheckpointSaver();

  /// Checks that `bytes`, of this rank, fit beside the others' on the disk, and sets checkpoints of later
  /// steps than `step` aside; `refused` as Checkpoint::refused. Before the first save; collective where
  /// sharded.
  /// Returns, on rank 0, the number of this start of the run (CheckpointStore::go_on_after); 0 elsewhere.
  std::int64_t begin(std::uint64_t bytes, std::int64_t step, std::span<const RefusedCheckpoint> refused);

  /// Whether save() would begin at once: nothing is on its way to the disk. The same on all ranks where
  /// sharded.
  bool free() const;
  /// Copies `snapshot` and begins to write it; the tensors may change when it returns. Waits for the write
  /// before, unless free(). Throws UsageError for what cannot be written. Collective where sharded.
  void save(const Snapshot& snapshot);
  /// The checkpoint of `step` is due and not free() to be taken: says so, and asks for another.
  void put_off(std::int64_t step);
  /// Whether a checkpoint was put off, or the last one failed.
  bool owes() const noexcept { return owed_; }
  /// Whether that is so and another should be taken now. Only rank 0 asks; the answer
  /// goes to all where sharded.
  bool wants_save() const;

  /// Between steps: a save that all ranks have written becomes a checkpoint, one that failed is told of.
  /// Costs nothing while there is none, and an exchange of one number while ranks save together.
  void poll();
  /// Collective where ranks step together. Waits until nothing is on its way to any disk and `busy` (may be
  /// null) is false on every rank. A rank that waits answers the others, so that a peer that is lost is
  /// noticed as in a step. Throws PeerError.
  void drain(const std::function<bool()>& busy = {});
  /// After drain(), on rank 0: CheckpointStore::refuse_from.
  std::optional<std::int64_t> refuse_from(std::int64_t step, const std::string& reason);
  /// After drain(). Throws the error of the last save if that failed: SystemError where it is this rank's,
  /// Error naming the rank elsewhere.
  void check();

 private:
  enum class Phase { none, parts, ending };

  bool writing() const;
  /// The worst of what the ranks say.
  int worst(int own);
  int word() const;
  /// Sharded: what all ranks have said moves the save on.
  void move_on(int verdict);
  void take_failure();
  void tell_failure();
  void fail(const std::exception_ptr& error);

  SaverContext context_;
  bool sharded_;
  std::unique_ptr<CheckpointStore> store_;         ///< null on ranks that save nothing
  std::unique_ptr<AsyncCheckpointWriter> writer_;  ///< null with it
  Phase phase_ = Phase::none;  ///< of a save that ranks make together; equal on all of them
  bool failing_ = false;       ///< what phase_ ends was not written by all
  std::int64_t step_ = 0;      ///< of the save begun last
  TimePoint begun_at_{};
  std::exception_ptr failure_;  ///< of the save begun last
  bool owed_ = false;
  TimePoint owed_from_{};
};

}  // namespace dtrain
