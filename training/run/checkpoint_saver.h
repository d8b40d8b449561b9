// Who writes a checkpoint, and when it counts: rank 0 alone where it holds everything, else every rank its
// own part, beside training, and rank 0 the index when all parts are on the disk. A checkpoint appears whole
// or not at all.
#pragma once

#include <filesystem>
#include <memory>

#include "collectives/communicator.h"
#include "runtime/checkpoint/async_writer.h"

namespace dtrain {

/// What a saver borrows; all of it outlives the saver.
struct SaverContext {
  Communicator& communicator;
  Log& log;
  SpanRecorder* spans;  ///< where writing leaves spans; may be null
  Duration patience;    ///< how long ranks that save together wait for each other's word
};

/// One rank's; used by the training thread. With `sharded` all functions but durable() are collective, else
/// only rank 0's calls do anything.
class CheckpointSaver {
 public:
  /// `locked`: on rank 0 the store that holds the run's lock, elsewhere null. `folder`: of the run's
  /// checkpoints, as this rank sees it. Throws SystemError when a rank that saves cannot see the folder.
  CheckpointSaver(std::unique_ptr<CheckpointStore> locked, const std::filesystem::path& folder, bool sharded,
                  const SaverContext& context);

  /// Checks that `bytes`, of this rank, fit beside the others' on the disk, and sets checkpoints of later
  /// steps than `step` aside; `refused` as Checkpoint::refused. Before the first save.
  void begin(std::uint64_t bytes, std::int64_t step, std::span<const RefusedCheckpoint> refused);

  /// Copies `snapshot` and begins to write it; the tensors may change when it returns. Ends the save before
  /// first. Throws that save's error: SystemError where it is this rank's, Error naming the rank elsewhere.
  void save(const Snapshot& snapshot);
  /// Between steps: a save that all ranks have written becomes a checkpoint. Costs nothing while there is
  /// none, and an exchange of one number while ranks save together.
  void poll();
  /// Waits until the last save is durable. Throws as save().
  void finish();

 private:
  bool writes() const noexcept { return store_ != nullptr; }
  /// Ends a save that ranks make together: commits it when every rank has written, abandons it when one has
  /// failed. With `wait` unless it is over; else only when it is.
  void settle(bool wait);
  int worst(int own);
  [[noreturn]] void give_up(std::exception_ptr own);

  SaverContext context_;
  bool sharded_;
  std::unique_ptr<CheckpointStore> store_;         ///< null on ranks that save nothing
  std::unique_ptr<AsyncCheckpointWriter> writer_;  ///< null with it
  bool in_flight_ = false;  ///< written together and neither committed nor abandoned; equal on all ranks
};

}  // namespace dtrain
