// Writes in a thread of its own, so that a slow or failing disk never holds up a training step whose peers
// would wait for it: a run's records, and checkpoints.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"

namespace dtrain {

struct BackgroundWriterOptions {
  const char* thread_name = "dtrain-writer";
  /// How long an entry that the system refuses is tried again before it is dropped.
  Duration patience = std::chrono::seconds(10);
  /// Entries that may wait; post() waits for room beyond.
  std::size_t most = 100'000;
  /// The thread looks for entries this often: a step then pays for a queue's end and not for a switch of
  /// threads. Zero: post() wakes it.
  Duration look_every = std::chrono::milliseconds(10);
  /// Whether the log hears of what is dropped, rather than the caller of check() alone.
  bool tells = true;
};

/// Thread-safe.
class BackgroundWriter {
 public:
  /// What writes something, once: where it throws SystemError it is called again, so it must have written
  /// nothing then. Anything else that it throws drops it at once.
  using Entry = std::function<void()>;

  /// `log` is borrowed; it hears of trouble.
  explicit BackgroundWriter(Log& log, const BackgroundWriterOptions& options = {});
  /// Waits for the entries that are there; what is refused now is dropped.
  ~BackgroundWriter();
  BackgroundWriter(const BackgroundWriter&) = delete;
  BackgroundWriter& operator=(const BackgroundWriter&) = delete;

  /// Returns at once; entries are written in order. The second with a patience of its own.
  void post(Entry entry) { post(std::move(entry), options_.patience); }
  void post(Entry entry, Duration patience);
  /// Whether all that was posted has been written or dropped.
  bool idle() const;
  /// Waits until it is, or until `deadline`; whether it is.
  bool drain(const Deadline& deadline);
  /// Whether check() would throw.
  bool failed() const;
  /// Throws the first error of an entry that was dropped, once.
  void check();

 private:
  struct Waiting {
    Entry entry;
    Duration patience;
  };

  void work() noexcept;
  /// Whether `entry` is written; else it is given up.
  bool write(const Entry& entry, Duration patience);
  bool drop(const std::exception& error);

  Log* log_;
  BackgroundWriterOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Waiting> entries_;  ///< the first stays until it is written
  bool stopping_ = false, hurried_ = false;
  bool refusing_ = false;  ///< the last entry was dropped: the next gets one try
  std::size_t dropped_ = 0;
  std::exception_ptr first_error_;
  std::thread thread_;
};

}  // namespace dtrain
