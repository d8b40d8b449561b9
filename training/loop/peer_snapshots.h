// Copies of the training state in the memory of each node, so that losing one costs a few steps even where
// the disk with the checkpoints is lost too. For strategies whose ranks all hold the whole state: on each
// node one of them keeps its copy, in a folder that the launcher owns and that outlives its workers.
#pragma once

#include <memory>
#include <optional>

#include "collectives/communicator.h"
#include "runtime/base/environment.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/checkpoint/checkpoint_saver.h"

namespace dtrain {

class PeerSnapshots {
 public:
  /// Collective. DTRAIN_MEMORY_DIR of `environment` is the folder. `communicator` and `log` are borrowed.
  /// Throws UsageError, on all ranks, when one that would keep a copy has no such folder.
  PeerSnapshots(Communicator& communicator, const Environment& environment, Log& log, Duration patience);
  ~PeerSnapshots();
  PeerSnapshots(const PeerSnapshots&) = delete;
  PeerSnapshots& operator=(const PeerSnapshots&) = delete;

  /// Collective. The newest copy that verifies on any node, on rank 0, where it is of a later step than
  /// `step` (of rank 0: what the disk has, -1: nothing); nothing otherwise, and on other ranks. Takes as long
  /// as reading it and sending it to rank 0. Throws PeerError.
  std::optional<Checkpoint> find(std::int64_t step, const Deadline& deadline);

  /// Whether this rank keeps its node's copy.
  bool keeps() const noexcept { return saver_ != nullptr; }
  /// Copies `snapshot` and keeps the copy instead of the one before, in the background. For a rank that
  /// keeps(). Waits for the one before if that is still being written, which takes as long as copying memory
  /// does; longer than `patience`, or memory that does not suffice, is only logged.
  void keep(const Snapshot& snapshot);
  /// Drops this rank's copy where it is of `step` or later: nothing good follows from it.
  void drop_from(std::int64_t step);

 private:
  void send(const Checkpoint& checkpoint, const Deadline& deadline);
  std::optional<Checkpoint> receive(int from, const Deadline& deadline);
  std::int64_t all_max(std::int64_t value, const Deadline& deadline);
  void warn(const Error& error);

  Communicator& communicator_;
  Log& log_;
  Duration patience_;
  std::filesystem::path folder_;
  std::unique_ptr<CheckpointStore> store_;  ///< null on ranks that keep nothing
  std::unique_ptr<CheckpointSaver> saver_;
  bool warned_ = false;
};

}  // namespace dtrain
