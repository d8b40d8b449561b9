// Notes of what was done, when somebody wants them.
#pragma once

#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

#include "emulation/include/emulated_work.h"

namespace emulation {

/// Thread-safe.
class WorkLog {
 public:
  bool is_on() const noexcept { return on_; }
  void turn(bool on) noexcept { on_ = on; }
  void add(Work work) {
    if (!on_) return;
    const std::lock_guard lock(mutex_);
    done_.push_back(std::move(work));
  }
  std::vector<Work> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(done_, {});
  }

 private:
  std::atomic<bool> on_ = false;
  std::mutex mutex_;
  std::vector<Work> done_;
};

}  // namespace emulation
