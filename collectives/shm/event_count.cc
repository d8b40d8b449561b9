#include "collectives/shm/event_count.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace dtrain {

void EventCount::wake() noexcept {
  std::atomic_ref(state_->epoch).fetch_add(1, std::memory_order_seq_cst);
  ::syscall(SYS_futex, &state_->epoch, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void EventCount::wait(std::uint32_t seen, Duration longest) noexcept {
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(longest);
  const timespec limit{whole.count(), (longest - whole).count()};
  // Whether rung, timed out or interrupted: the caller looks again.
  ::syscall(SYS_futex, &state_->epoch, FUTEX_WAIT, seen, &limit, nullptr, 0);
}

}  // namespace dtrain
