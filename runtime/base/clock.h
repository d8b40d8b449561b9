// Monotonic time behind an interface, so that tests can hold the clock, and the deadline every blocking call
// takes.
#pragma once

#include <chrono>
#include <optional>

namespace dtrain {

using Duration = std::chrono::nanoseconds;
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;

/// Source of monotonic time. Implementations are thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint now() const noexcept = 0;
};

/// std::chrono::steady_clock.
class SteadyClock final : public Clock {
 public:
  TimePoint now() const noexcept override { return std::chrono::steady_clock::now(); }
};

/// The process-wide real clock (stateless; exists so that callers need not own one).
const Clock& steady_clock() noexcept;

/// A point in time after which a blocking call must give up. Cheap to copy.
class Deadline {
 public:
  /// Never expires.
  static Deadline never() noexcept { return Deadline(); }
  /// Expires `wait` after `clock`'s now; a non-positive wait is already expired. `clock` must outlive the
  /// deadline.
  static Deadline after(Duration wait, const Clock& clock = steady_clock()) noexcept;

  bool expired() const noexcept;
  bool is_never() const noexcept { return !at_.has_value(); }
  /// Time left, at least 0; Duration::max() for never().
  Duration remaining() const noexcept;
  /// For poll(2): milliseconds left rounded up, capped at INT_MAX; -1 for never().
  int poll_timeout_ms() const noexcept;
  /// The moment itself; empty for never().
  std::optional<TimePoint> at() const noexcept { return at_; }

 private:
  Deadline() noexcept = default;
  const Clock* clock_ = nullptr;
  std::optional<TimePoint> at_;
};

}  // namespace dtrain
