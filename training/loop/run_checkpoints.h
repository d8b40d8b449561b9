// What a run resumes from and what it saves to: its folder, the checkpoints there, and snapshots in the
// memory of its nodes. Rank 0 picks the checkpoint; all ranks come to the same state.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "runtime/checkpoint/checkpoint_saver.h"
#include "training/loop/finite_check.h"
#include "training/loop/peer_snapshots.h"
#include "training/loop/trainer_environment.h"
#include "training/loop/tuned_config.h"

namespace dtrain {

/// One rank's. Used by the training thread. "Collective" as in Strategy.
class RunCheckpoints {
 public:
  /// Everything is borrowed. `finite` looks at each checkpoint before it is taken.
  RunCheckpoints(const TrainConfig& config, const TrainerEnvironment& environment, const FiniteCheck& finite);

  /// Collective; before find(). What earlier starts of the run decided that no option said.
  TunedConfig tuned_config();
  /// Collective. Locks the run's folder, and finds the checkpoint that --resume asks for, or a newer snapshot
  /// in a node's memory. `check` (rank 0) throws where what was found does not fit. Throws as
  /// find_checkpoint().
  void find(const std::function<void(const Checkpoint&)>& check);
  /// Collective, after find(). Makes the folder where it is new, and whatever save() needs. `state` is the
  /// run's before load(); `before_write` is called in the writing thread before each write.
  void open(const TrainingState& state, std::function<void()> before_write);
  /// Collective, after open() and whenever the run resumes from what was found: sets checkpoints of later
  /// steps aside. Returns the number of this start of the run.
  std::int64_t begin();
  /// Collective, after begin(). The strategy takes over the state that was found, which is returned; nothing
  /// where the run is new.
  std::optional<TrainingState> load();
  /// Collective. Replicas differ: finds the newest state that all ranks agreed on, for load() and begin().
  void find_agreed();

  /// The run's folder, as rank 0 names it, after find().
  const std::filesystem::path& folder() const noexcept { return folder_; }
  /// On rank 0: what was found, until close_found(); null where the run is new.
  const Checkpoint* found() const noexcept { return found_ ? &*found_ : nullptr; }
  /// Closes its files: open ones would keep space on the disk when it is pruned.
  void close_found() noexcept { found_.reset(); }
  /// After open().
  CheckpointSaver& saver() noexcept { return *saver_; }
  /// Null unless asked for.
  PeerSnapshots* snapshots() noexcept { return snapshots_.get(); }

  /// Collective where ranks step together. What has, or leads to, trouble from `step` on is set aside, as
  /// CheckpointStore::refuse_from. The step of the newest checkpoint that is left, -1: there is none;
  /// nothing: only rank 0 knows.
  std::optional<std::int64_t> refuse_from(std::int64_t step, const std::string& reason);
  /// On rank 0: whether the folder was not there before this process.
  bool made_folder() const noexcept { return made_folder_; }
  /// Removes the folder that this process made.
  void remove_folder() noexcept;

 private:
  void make_snapshots();
  void take_newer_snapshot(const std::exception_ptr& disk_trouble);
  void make_store();
  CheckpointSaverOptions saver_options(std::function<void()> before_write);
  CheckpointTest unusable() const;
  std::string broadcast(std::string text) const;
  bool is_root() const { return env_.communicator.rank() == 0; }
  /// Several ranks write shards of their own.
  bool sharded() const { return env_.strategy.sharded() && env_.communicator.size() > 1; }
  /// While training is set up ranks differ by more than in a step: rank 0 may read a checkpoint.
  Deadline start_deadline() const { return Deadline::after(config_.connect_timeout); }

  const TrainConfig& config_;
  const TrainerEnvironment& env_;
  const FiniteCheck& finite_;
  std::filesystem::path folder_;
  bool made_folder_ = false;
  std::uint64_t bytes_ = 0;                 ///< of this rank's part of a checkpoint, once all state exists
  std::optional<Checkpoint> found_;         ///< on rank 0, and on ranks that load shards from it
  std::unique_ptr<CheckpointStore> store_;  ///< null on ranks that save nothing
  std::unique_ptr<CheckpointSaver> saver_;
  std::unique_ptr<PeerSnapshots> snapshots_;  ///< null unless asked for
};

}  // namespace dtrain
