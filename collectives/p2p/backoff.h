// How a thread passes the time between two looks at the progress of messages.
#pragma once

#include <sched.h>

#include <thread>

#include "collectives/p2p/transport.h"

namespace dtrain::p2p {

/// How long a thread keeps polling before it yields its core.
enum class Patience {
  none,     ///< others compute in the meantime: yields early, sleeps soon
  waiting,  ///< this thread has nothing else to do: yields for milliseconds
  alone     ///< and no other rank needs the core: at first it does not even yield
};

/// First it looks without a pause, then it yields, then it sleeps: a short wait ends within a microsecond, a
/// long one leaves the core to those who compute. (MPI's own blocking calls burn a whole core for as long as
/// they wait.) To yield on a busy machine is to be away for a time slice, which a message of up to a MiB is
/// not worth.
class Backoff {
 public:
  Backoff(Watchdog& watchdog, Patience patience) : watchdog_(watchdog), patience_(patience) {}

  void pause() {
    pause([](std::chrono::microseconds nap) { std::this_thread::sleep_for(nap); });
  }

  /// `sleep` gives the core away for about as long as it is told, or until there is something to look at.
  template <class Sleep>
  void pause(Sleep sleep) {
    ++looks_;
    if (looks_ < kSpins) return;
    const TimePoint now = steady_clock().now();
    if (looks_ == kSpins) start_ = now;
    if (last_tick_ == TimePoint{}) last_tick_ = now;
    if (now - last_tick_ >= kTickEvery) {
      last_tick_ = now;
      watchdog_.tick();
    }
    const auto waited = now - start_;
    if (patience_ == Patience::alone && waited < kSpinAlone) return;
    if (waited < (patience_ == Patience::none ? kYieldBusy : kYieldPatient)) {
      ::sched_yield();
    } else {
      sleep(waited < kShortSleepsFor ? kShortSleep : kLongSleep);
    }
  }

  /// Something moved: it is worth looking without a pause again.
  void restart() noexcept { looks_ = 0; }

 private:
  static constexpr int kSpins = 64;
  static constexpr std::chrono::microseconds kSpinAlone{300}, kYieldPatient{2000}, kYieldBusy{20};
  static constexpr std::chrono::milliseconds kShortSleepsFor{20};
  static constexpr std::chrono::microseconds kShortSleep{20}, kLongSleep{200};

  Watchdog& watchdog_;
  const Patience patience_;
  int looks_ = 0;
  TimePoint start_{}, last_tick_{};
};

}  // namespace dtrain::p2p
