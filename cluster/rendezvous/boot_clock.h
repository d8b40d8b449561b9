// The time that leases are counted in: it runs on while the machine is suspended, as the other machines'
// does.
#pragma once

#include "runtime/base/clock.h"

namespace dtrain::rendezvous {

/// CLOCK_BOOTTIME. Its points in time are not those of steady_clock(): never compare the two.
class BootClock final : public Clock {
 public:
  TimePoint now() const noexcept override;
};

/// The process-wide one (stateless).
const Clock& boot_clock() noexcept;

}  // namespace dtrain::rendezvous
