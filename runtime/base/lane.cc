#include "runtime/base/lane.h"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

namespace dtrain {
namespace {

// Per thread for the same reason as the recording flag of autograd: it has to reach kernels through code that
// does not know about it.
thread_local int current = 0;

// Numbers are given to threads of the whole process, whoever starts them.
struct Lanes {
  std::mutex mutex;
  std::vector<bool> taken;
};
Lanes& lanes() {
  static Lanes all;
  return all;
}

int take_lane() {
  const std::lock_guard lock(lanes().mutex);
  std::vector<bool>& taken = lanes().taken;
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

int thread_lane() noexcept { return current; }

LaneScope::LaneScope() : before_(current), lane_(take_lane()) { current = lane_; }

LaneScope::~LaneScope() {
  current = before_;
  const std::lock_guard lock(lanes().mutex);
  lanes().taken[static_cast<std::size_t>(lane_) - 1] = false;
}

}  // namespace dtrain
