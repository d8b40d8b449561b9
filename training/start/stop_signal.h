// Turns SIGTERM, SIGINT and SIGUSR2 into "please stop after this step"; a second one ends the process as if
// it had never been caught. What comes within half a second of the first counts as a copy of it. Before there
// are steps to end well, a user's ends it at once, with ExitCode::requeue. SIGUSR1 asks for a checkpoint, as
// often as it comes, but for the copy of an ask that another rank has taken up.
#pragma once

#include <signal.h>

#include <atomic>
#include <thread>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"

namespace dtrain {

class StopSignal {
 public:
  /// Construct before any other thread exists: threads inherit the blocked signals. Signals that come
  /// `copies` after a first one or sooner count as copies of it. Throws SystemError.
  explicit StopSignal(Duration copies = std::chrono::milliseconds(500));
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  /// From now on a signal waits for the end of a step. Any thread.
  void defer() noexcept { deferred_.store(true, std::memory_order_relaxed); }

  /// The signal that came, or 0. Any thread.
  int received() const noexcept { return received_.load(std::memory_order_relaxed); }

  /// Whether a checkpoint was asked for since the last call. Any thread, of which one hears of it.
  bool take_save_request() const noexcept { return save_asked_.exchange(false, std::memory_order_relaxed); }

  /// A checkpoint is written because another rank was asked for it. One asks all ranks: what has come
  /// here, or else the next ask before long, is a copy of that one and asks for nothing more. Any thread.
  void answer_save_request() const noexcept;

 private:
  void watch() noexcept;

  Duration copies_;
  sigset_t signals_{};  ///< that stop
  UniqueFd signal_fd_, end_fd_;
  std::atomic<bool> deferred_{false};
  std::atomic<int> received_{0};
  mutable std::atomic<bool> save_asked_{false};
  mutable std::atomic<TimePoint> copy_until_{TimePoint::min()};  ///< an ask before then is a copy
  std::thread watcher_;
};

}  // namespace dtrain
