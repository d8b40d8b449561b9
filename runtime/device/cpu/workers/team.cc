#include "runtime/device/cpu/workers/team.h"

#include <algorithm>

#include "runtime/base/start_thread.h"

namespace dtrain::cpu {

Team::~Team() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  called_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Team::run(ChunkQueue& queue, int workers, void (*in_thread)()) {
  workers = std::min(workers, static_cast<int>(kAtWork));
  while (static_cast<int>(threads_.size()) + 1 < workers) {
    const int worker = static_cast<int>(threads_.size()) + 1;
    threads_.push_back(start_thread("compute", [this, worker, in_thread] {
      in_thread();
      serve(worker);
    }));
  }
  queue_ = &queue;
  most_.store(workers, std::memory_order_relaxed);
  resting_.store(false, std::memory_order_relaxed);
  state_.store(((state_.load(std::memory_order_relaxed) & kCalls) + kCall) | kOpen);
  if (sleepers_.load() > 0) {
    { const std::lock_guard lock(mutex_); }
    called_.notify_all();
  }
  queue.work(0);
  if ((state_.fetch_and(~kOpen, std::memory_order_acq_rel) & kAtWork) != 0) wait_for_others();
}

void Team::serve(int worker) {
  Patience patience;
  std::uint32_t seen = 0;
  while (!stopping_.load(std::memory_order_relaxed)) {
    wait_for_call(seen, worker, patience);
    std::uint32_t state = state_.load();
    // What most_ says is of this call or, where this call has ended, makes no difference.
    if (!is_open_to(state, seen, worker)) continue;
    if (!state_.compare_exchange_strong(state, state + kOne, std::memory_order_acq_rel)) continue;
    seen = state & kCalls;
    queue_->work(worker);
    leave();
  }
}

bool Team::is_open_to(std::uint32_t state, std::uint32_t seen, int worker) const noexcept {
  return (state & kOpen) != 0 && (state & kCalls) != seen && worker < most_.load(std::memory_order_relaxed);
}

void Team::wait_for_call(std::uint32_t seen, int worker, Patience& patience) {
  const auto called = [&] {
    return is_open_to(state_.load(), seen, worker) || stopping_.load(std::memory_order_relaxed);
  };
  if (patience.spin([&] { return called() || resting_.load(std::memory_order_relaxed); }) && called()) return;
  std::unique_lock lock(mutex_);
  ++sleepers_;
  called_.wait(lock, called);
  --sleepers_;
}

void Team::leave() {
  const bool last = (state_.fetch_sub(kOne) & kAtWork) == kOne;
  if (!last || !caller_sleeps_.load()) return;
  { const std::lock_guard lock(mutex_); }
  alone_.notify_one();
}

void Team::wait_for_others() {
  const auto alone = [&] { return (state_.load() & kAtWork) == 0; };
  if (patience_.spin(alone)) return;
  std::unique_lock lock(mutex_);
  caller_sleeps_ = true;
  alone_.wait(lock, alone);
  caller_sleeps_ = false;
}

}  // namespace dtrain::cpu
