// What a worker says of itself while it runs, in a page of memory that it shares with its launcher: a step
// costs the worker some stores and no system call, and the launcher reads when somebody asks.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <limits>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/environment.h"
#include "runtime/base/fd.h"

namespace dtrain {

/// What a worker is doing.
enum class WorkerState : std::uint8_t {
  starting,    ///< it has not met the others
  joined,      ///< it has; data and network are being set up
  training,    ///< it makes steps
  evaluating,  ///< it computes metrics on the test set
  stopping,    ///< the last step is done; what is left is written
};

/// "training"
std::string_view name_of(WorkerState state) noexcept;

/// What a worker that the others wait for is slow at.
enum class StragglerPhase : std::uint8_t {
  none,     ///< it is no straggler
  data,     ///< it waits for its batches
  compute,  ///< forward, backward and optimizer
};

/// "data"
std::string_view name_of(StragglerPhase phase) noexcept;

/// Whether a worker has been slower than the others, and by how much.
struct Slowness {
  StragglerPhase phase = StragglerPhase::none;
  double factor = 0;  ///< its own part of a step, in those of the others' median; 0 where phase is none

  bool operator==(const Slowness&) const = default;
};

/// NaN: not known (yet).
struct WorkerStatus {
  static constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

  WorkerState state = WorkerState::starting;
  bool saving = false;                                ///< a checkpoint is being written, in the background
  std::int64_t step = 0, total_steps = 0, epoch = 0;  ///< the last finished step; epochs count from 0
  double loss = kUnknown;                             ///< of that step, the mean over the global batch
  double samples_per_second = kUnknown;               ///< of all workers together
  double step_seconds = kUnknown;                     ///< a step, averaged over the last ones
  double own_seconds = kUnknown;                      ///< of it, what this worker did not wait for others
  std::int64_t checkpoints = 0;                       ///< written by this worker since it started
  std::int64_t checkpoint_step = -1;                  ///< of the last one; -1: none
  double checkpoint_seconds = kUnknown;               ///< the time that its writing took
  Slowness slowness{};                                ///< over the last two minutes
};

/// The variable that has a descriptor, the number of a slot in its memory, the memory's own (its inode), and
/// the launcher's process id: "7:2:1041:4211". A program that a script has started does not have the
/// descriptor, and opens the launcher's.
inline constexpr const char* kStatusVariable = "DTRAIN_STATUS_FD";

/// A view of one worker's place in the page; an empty one takes everything and keeps nothing. One thread
/// writes at a time, any number of processes read.
class StatusSlot {
 public:
  struct Words;

  StatusSlot() = default;
  explicit StatusSlot(Words& words) : words_(&words) {}
  /// What the launcher gave this process, or offers it; empty where it set nothing, or its memory cannot be
  /// reached from here (another user, another PID namespace). It stays mapped until the process ends. Throws
  /// UsageError when the variable names no slot, SystemError when it cannot be mapped.
  static StatusSlot from(const Environment& environment);

  /// Never blocks.
  void write(const WorkerStatus& status) noexcept;
  /// What was written last; nothing before that, or where a program of another version of dtrain wrote it.
  std::optional<WorkerStatus> read() const noexcept;

 private:
  Words* words_ = nullptr;
};

/// The launcher's: a slot for each worker of one start.
class StatusPage {
 public:
  /// Throws SystemError.
  explicit StatusPage(int workers);
  ~StatusPage();
  StatusPage(const StatusPage&) = delete;
  StatusPage& operator=(const StatusPage&) = delete;

  int fd() const noexcept { return memory_.get(); }
  /// What kStatusVariable is for `worker`, which has `fd`. Throws SystemError.
  static std::string variable(int fd, int worker);
  StatusSlot slot(int worker) const noexcept;

 private:
  UniqueFd memory_;
  std::size_t bytes_;
  StatusSlot::Words* slots_ = nullptr;
};

/// A worker's own status, which several of its threads change.
///
///     reporter.update([](WorkerStatus& status) { status.state = WorkerState::evaluating; });
class StatusReporter {
 public:
  explicit StatusReporter(StatusSlot slot) : slot_(slot) {
    update([](WorkerStatus&) {});
  }

  /// Any thread; `change` must not throw.
  template <class Change>
  void update(Change&& change) {
    const std::lock_guard lock(mutex_);
    change(status_);
    slot_.write(status_);
  }

 private:
  std::mutex mutex_;
  WorkerStatus status_;
  StatusSlot slot_;
};

}  // namespace dtrain
