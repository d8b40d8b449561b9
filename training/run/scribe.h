// Writes a run's records in a thread of its own, so that a slow or failing disk never holds up a training
// step whose peers would wait for it.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "runtime/base/clock.h"
#include "runtime/base/files/write_permit.h"
#include "runtime/base/log.h"

namespace dtrain {

struct ScribeOptions {
  /// How long an entry that the system refuses is tried again before it is dropped.
  Duration patience = std::chrono::seconds(10);
  /// Looked at before each entry: without it the entry is dropped.
  WritePermit permit = {};
  /// Entries that may wait; post() waits for room beyond.
  std::size_t most = 100'000;
};

/// Thread-safe.
class Scribe {
 public:
  /// What writes something, once: where it throws SystemError it is called again, so it must have written
  /// nothing then.
  using Entry = std::function<void()>;

  /// `log` is borrowed; it hears of trouble.
  explicit Scribe(Log& log, const ScribeOptions& options = {});
  /// Waits for the entries that are there; what is refused now is dropped.
  ~Scribe();
  Scribe(const Scribe&) = delete;
  Scribe& operator=(const Scribe&) = delete;

  /// Returns at once; entries are written in order.
  void post(Entry entry);
  /// Whether all that was posted has been written or dropped.
  bool idle() const;
  /// Waits until it is, or until `deadline`; whether it is.
  bool drain(const Deadline& deadline);
  /// Throws the first error of an entry that was dropped, once.
  void check();

 private:
  void work() noexcept;
  /// Whether `entry` is written or given up.
  void write(const Entry& entry);
  void drop(const std::exception& error);

  Log* log_;
  ScribeOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Entry> entries_;  ///< the first stays until it is written
  bool stopping_ = false, hurried_ = false;
  bool refusing_ = false;  ///< the last entry was dropped: the next gets one try
  std::size_t dropped_ = 0;
  std::exception_ptr first_error_;
  std::thread thread_;
};

}  // namespace dtrain
