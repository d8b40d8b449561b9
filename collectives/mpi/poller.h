// How a thread passes the time between two looks at MPI's progress.
#pragma once

#include <sched.h>

#include <thread>

#include "collectives/p2p/transport.h"

namespace dtrain {

/// First it looks without a pause, then it yields, then it sleeps: a short wait ends within a microsecond, a
/// long one leaves the core to those who compute. A patient thread has nothing else to do and yields longer.
/// (MPI's own blocking calls burn a whole core for as long as they wait.)
class Poller {
 public:
  Poller(p2p::Watch& watch, bool patient) : watch_(watch), patient_(patient) {}

  void pause() {
    ++looks_;
    if (looks_ < kSpins) return;
    const TimePoint now = steady_clock().now();
    if (looks_ == kSpins) start_ = last_tick_ = now;
    if (now - last_tick_ >= p2p::kTickEvery) {
      last_tick_ = now;
      watch_.tick();
    }
    const auto waited = now - start_;
    if (waited < (patient_ ? kYieldPatient : kYieldBusy)) {
      ::sched_yield();
    } else {
      std::this_thread::sleep_for(waited < kShortSleepsFor ? kShortSleep : kLongSleep);
    }
  }

 private:
  static constexpr int kSpins = 64;
  static constexpr std::chrono::microseconds kYieldPatient{2000}, kYieldBusy{20};
  static constexpr std::chrono::milliseconds kShortSleepsFor{20};
  static constexpr std::chrono::microseconds kShortSleep{20}, kLongSleep{200};

  p2p::Watch& watch_;
  const bool patient_;
  int looks_ = 0;
  TimePoint start_{}, last_tick_{};
};

}  // namespace dtrain
