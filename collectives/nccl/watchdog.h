// Watches over the calls an NCCL group has queued, for which the host does not wait: a lost peer would
// leave them on the GPU forever. One thread looks at the oldest call that is not done; when it fails,
// disagrees with the other ranks' or takes too long, the group ends, and with it every wait on the GPU.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "collectives/p2p/call_watchdog.h"
#include "runtime/base/log.h"

namespace dtrain::nccl {

/// A queued call.
struct Pending {
  p2p::Call call;
  /// Whether the GPU is done with it; called by the watchdog's thread. Throws DeviceError when it failed.
  std::function<bool()> done;
};

/// Thread-safe. Knows nothing of CUDA: tests drive it with a clockwork of their own.
class Watchdog {
 public:
  struct Parts {
    p2p::Members& members;
    p2p::OobKv& oob;
    /// What the library has found wrong with the group since, if anything.
    std::function<std::optional<std::string>()> library_failure;
    /// Ends the group here: calls under way come off the GPU. Called once, when failure() already says why:
    /// calls that it breaks off look finished to the GPU.
    std::function<void()> kill;
    /// Runs first in the watchdog's thread.
    std::function<void()> begin;
  };

  /// A call may stay at the head of the queue for `timeout`. `log` outlives the watchdog.
  Watchdog(Parts parts, std::string name, Duration timeout, Log& log);
  /// Stops watching; calls still under way no longer matter.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Numbers `call` before it is queued on the GPU. Throws PeerError when the group is dead. Calls are made
  /// by one thread at a time.
  void number(p2p::Call& call);
  /// From now on `pending` is watched.
  void watch(Pending pending);
  /// The time for calls that come to the head of the queue from now on.
  void limit_calls(Duration timeout) noexcept;
  /// Ends the group with the reason, unless it is dead already; returns before that has happened.
  void abort(std::string_view reason) noexcept;
  /// A wait for `call` ran out of time: ends the group, and returns when it has.
  void give_up(const p2p::Call& call);
  /// Why and where the group ended; nullopt while it lives.
  std::optional<PeerFailure> failure() const;
  /// Throws PeerError for `call` if the group is dead.
  void check(const p2p::Call& call) const;
  /// No call is under way.
  bool idle() const;

 private:
  void run() noexcept;
  void look(std::unique_lock<std::mutex>& lock);
  std::optional<PeerFailure> examine();
  void end(std::unique_lock<std::mutex>& lock, const PeerFailure& failure);

  Parts parts_;
  const std::string name_;
  Duration timeout_;
  Log& log_;

  mutable std::mutex mutex_;
  std::condition_variable wake_, ended_;
  std::deque<std::shared_ptr<Pending>> queue_;
  p2p::FlightRecorder recorder_;
  p2p::CallNumbering numbering_;
  std::optional<std::string> abort_reason_;
  std::optional<PeerFailure> failure_;
  bool out_of_time_ = false;
  bool stopping_ = false;

  p2p::CallWatchdog::Sources sources_;
  std::shared_ptr<Pending> watched_;  ///< whom the watchdog is for
  std::optional<p2p::CallWatchdog> call_watchdog_;
  std::thread thread_;
};

}  // namespace dtrain::nccl
