// Linux counts it since the machine was started, suspended or not.
#include "cluster/rendezvous/boot_clock.h"

#include <ctime>

namespace dtrain::rendezvous {

TimePoint BootClock::now() const noexcept {
  timespec time{};
  ::clock_gettime(CLOCK_BOOTTIME, &time);
  return TimePoint(std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec));
}

const Clock& boot_clock() noexcept {
  static const BootClock clock;
  return clock;
}

}  // namespace dtrain::rendezvous
