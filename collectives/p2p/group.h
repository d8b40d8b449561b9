// One group of ranks at work: the queue of calls, the thread that runs them in order, and the one way a group
// ends.
#pragma once

#include <condition_variable>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "collectives/p2p/call.h"
#include "collectives/p2p/call_watchdog.h"
#include "collectives/p2p/flight_recorder.h"
#include "collectives/p2p/peer_failure.h"
#include "collectives/p2p/transport.h"
#include "runtime/base/log.h"
#include "runtime/base/spans.h"

namespace dtrain::p2p {

/// A call with its memory. `done` and `failed` are guarded by the group.
struct QueuedCall {
  Call call;
  MemorySpan input = {};               ///< read; for calls in place the same as `output`
  MemorySpan output = {};              ///< written
  std::vector<MemorySpan> spans = {};  ///< exchange: beside call.messages
  int* source = nullptr;               ///< receive_any: whose offer it was
  bool done = false;
  bool failed = false;
};

/// Thread-safe but for submit() and split(), which come from one thread at a time. A waiting thread runs
/// queued calls itself when the group's own thread has not begun them: that saves two hand-overs where
/// nothing overlaps.
class Group {
 public:
  /// `timeout` bounds every single call. `log` must outlive the group, and so must `spans`, where each call
  /// leaves a span of the thread it ran on; null: nowhere.
  Group(Endpoints endpoints, std::string name, Duration timeout, Log& log, SpanRecorder* spans = nullptr);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  std::string_view backend() const noexcept { return backend_; }
  Duration timeout() const noexcept { return timeout_; }
  SpanRecorder* spans() const noexcept { return spans_; }
  /// How its all_reduce goes, for people.
  std::string all_reduce_text() const;

  /// Queues the call; sets its sequence and fingerprint. Throws PeerError when the group is dead.
  std::shared_ptr<QueuedCall> submit(QueuedCall call);
  void wait(QueuedCall& queued, const Deadline& deadline);
  bool done(const QueuedCall& queued) noexcept;
  /// As Communicator::set_call_start.
  void set_call_start(CallStart start) noexcept;
  void abort(std::string_view reason) noexcept;
  /// Agrees with the others that the group is over, for at most a few seconds, and stops. Further calls
  /// throw.
  void leave() noexcept;
  /// Only while no call is under way. `name` is that of the new group.
  Endpoints split(const std::vector<int>& members, const std::string& name, const Deadline& deadline);

 private:
  void run() noexcept;
  void run_front(std::unique_lock<std::mutex>& lock, bool patient) noexcept;
  void execute(QueuedCall& queued, bool patient);
  void end(const PeerFailure& failure) noexcept;
  void end_by_abort() noexcept;
  std::optional<std::string> aborted();
  bool out_of_time();
  [[noreturn]] void throw_ended(const Call& call) const;

  Endpoints endpoints_;
  const std::string name_;
  const int rank_, size_;
  const std::string backend_;
  const Duration timeout_;
  Log& log_;
  SpanRecorder* const spans_;
  const std::size_t segment_bytes_;

  std::mutex mutex_;
  std::condition_variable work_, done_;
  std::deque<std::shared_ptr<QueuedCall>> queue_;
  std::list<Deadline> waits_;  ///< deadlines of those who wait now
  bool executing_ = false;
  CallStart call_start_ = CallStart::at_once;
  bool stopping_ = false;
  std::optional<PeerFailure> failure_;  ///< set once: the group is dead
  std::optional<std::string> abort_reason_;

  CallNumbering numbering_;  // touched by the caller only

  // Touched by the thread that executes a call.
  FlightRecorder recorder_;
  std::vector<std::byte> scratch_;
  TimePoint last_drain_{};
  CallWatchdog::Sources sources_;

  std::thread thread_;
};

}  // namespace dtrain::p2p
