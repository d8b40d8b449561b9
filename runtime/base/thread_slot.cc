#include "runtime/base/thread_slot.h"

#include <algorithm>
#include <mutex>
#include <vector>

namespace dtrain {
namespace {

// Per thread for the same reason as the recording flag of autograd: it has to reach kernels through code that
// does not know about it.
thread_local int current = 0;

// Numbers are given to all threads of the process, also those that others start.
struct ThreadSlots {
  std::mutex mutex;
  std::vector<bool> taken;
};
ThreadSlots& slots() {
  static ThreadSlots all;
  return all;
}

int take_slot() {
  const std::lock_guard lock(slots().mutex);
  std::vector<bool>& taken = slots().taken;
  const auto place = std::find(taken.begin(), taken.end(), false);
  const auto index = place - taken.begin();
  if (place == taken.end()) {
    taken.push_back(true);
  } else {
    *place = true;
  }
  return static_cast<int>(index) + 1;
}

}  // namespace

int thread_slot() noexcept { return current; }

int lasting_thread_slot() {
  if (current == 0) static thread_local const ThreadSlotScope slot;
  return current;
}

ThreadSlotScope::ThreadSlotScope() : before_(current), slot_(take_slot()) { current = slot_; }

ThreadSlotScope::~ThreadSlotScope() {
  current = before_;
  const std::lock_guard lock(slots().mutex);
  slots().taken[static_cast<std::size_t>(slot_) - 1] = false;
}

}  // namespace dtrain
