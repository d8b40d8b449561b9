// The time that leases are counted in: it runs on while the machine is suspended, as the other machines'
// does.
#pragma once

#include <ctime>

#include "runtime/base/clock.h"

namespace dtrain::rendezvous {

/// CLOCK_BOOTTIME. Its points in time are not those of steady_clock(): never compare the two.
class BootClock final : public Clock {
 public:
  TimePoint now() const noexcept override {
    timespec time{};
    ::clock_gettime(CLOCK_BOOTTIME, &time);
    return TimePoint(std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec));
  }
};

/// The process-wide one (stateless).
inline const Clock& boot_clock() noexcept {
  static const BootClock clock;
  return clock;
}

}  // namespace dtrain::rendezvous
