// Deadline arithmetic; saturating, so that "an hour" and "forever" never overflow.
#include "runtime/base/clock.h"

#include <climits>

namespace dtrain {

const Clock& steady_clock() noexcept {
  static const SteadyClock clock;
  return clock;
}

Deadline Deadline::after(Duration wait, const Clock& clock) noexcept {
  const TimePoint now = clock.now();
  if (wait > TimePoint::max() - now) return never();
  Deadline deadline;
  deadline.clock_ = &clock;
  deadline.at_ = now + wait;
  return deadline;
}

bool Deadline::expired() const noexcept { return at_ && clock_->now() >= *at_; }

Duration Deadline::remaining() const noexcept {
  if (!at_) return Duration::max();
  const TimePoint now = clock_->now();
  return now >= *at_ ? Duration::zero() : *at_ - now;
}

int Deadline::poll_timeout_ms() const noexcept {
  if (!at_) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(remaining()).count();
  return left > INT_MAX ? INT_MAX : static_cast<int>(left);
}

}  // namespace dtrain
