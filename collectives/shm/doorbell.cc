#include "collectives/shm/doorbell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace dtrain {

void Doorbell::wake() noexcept {
  std::atomic_ref(state_->rings).fetch_add(1, std::memory_order_seq_cst);
  ::syscall(SYS_futex, &state_->rings, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Doorbell::wait(std::uint32_t heard, Duration longest) noexcept {
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(longest);
  const timespec limit{whole.count(), (longest - whole).count()};
  // Whether rung, timed out or interrupted: the caller looks again.
  ::syscall(SYS_futex, &state_->rings, FUTEX_WAIT, heard, &limit, nullptr, 0);
}

}  // namespace dtrain
