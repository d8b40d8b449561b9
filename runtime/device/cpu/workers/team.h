// The threads that help one thread with its chunks. They spin for a while for the next call and then sleep;
// nobody waits for one that has not begun, so that a thread which has no core holds nothing up.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/device/cpu/workers/chunk_queue.h"

namespace dtrain::cpu {

/// Spinning for what comes within microseconds, for which waking a thread that sleeps would take longer. A
/// thread that was kept from running meanwhile is on a busy machine, where others need its core: it does not
/// spin for a number of times that doubles whenever this happens again soon.
class Patience {
 public:
  /// Whether `done()` has come true.
  template <class Done>
  bool spin(const Done& done) {
    if (skip_ > 0) {
      --skip_;
      return done();
    }
    const auto end = Clock::now() + kLongest;
    for (auto last = Clock::now();;) {
      for (int i = 0; i < kPauses; ++i) {
        if (done()) return came();
        pause();
      }
      const auto now = Clock::now();
      if (now - last > kKeptOff) return kept_off(done());
      if (now >= end) return done();
      last = now;
    }
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr auto kLongest = std::chrono::microseconds(200);
  static constexpr auto kKeptOff = std::chrono::microseconds(300);
  static constexpr int kPauses = 32;  ///< between looks at the clock, about a microsecond
  static constexpr int kFewest = 8, kMost = 1024;

  static void pause() noexcept {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
  }
  bool came() noexcept {
    next_skip_ = std::max(kFewest, next_skip_ / 2);
    return true;
  }
  bool kept_off(bool done) noexcept {
    skip_ = next_skip_;
    next_skip_ = std::min(kMost, 2 * next_skip_);
    return done;
  }

  int skip_ = 0, next_skip_ = kFewest;
};

/// One caller's. Not thread-safe: only that thread calls it.
class Team {
 public:
  Team() = default;
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  /// Has the queue's chunks done by at most `workers` threads, the caller being worker 0, and returns when
  /// none is left and nobody is at work. `in_thread` is what a new thread calls first. Throws SystemError
  /// where a thread cannot be started; no chunk has been done then.
  void run(ChunkQueue& queue, int workers, void (*in_thread)());
  /// Threads that spin go to sleep, for others' threads to have their cores. Until the next run().
  void rest() noexcept { resting_.store(true, std::memory_order_relaxed); }

 private:
  // state_ says how many threads are at work, whether more may come, and, above that, which call it is.
  static constexpr std::uint32_t kOne = 1, kAtWork = 0x3ff, kOpen = 0x400, kCall = 0x800, kCalls = ~0x7ffU;

  void serve(int worker);
  void wait_for_call(std::uint32_t seen, int worker, Patience& patience);
  bool is_open_to(std::uint32_t state, std::uint32_t seen, int worker) const noexcept;
  void leave();
  void wait_for_others();

  // Sequentially consistent where one side writes, then looks whether the other sleeps.
  alignas(64) std::atomic<std::uint32_t> state_ = 0;
  std::atomic<int> most_ = 0;  ///< workers of this call
  std::atomic<bool> resting_ = false, stopping_ = false;
  ChunkQueue* queue_ = nullptr;  ///< belongs to those who are at work

  alignas(64) std::atomic<int> sleepers_ = 0;
  std::atomic<bool> caller_sleeps_ = false;
  std::mutex mutex_;
  std::condition_variable called_, alone_;
  Patience patience_;  ///< the caller's
  std::vector<std::thread> threads_;
};

}  // namespace dtrain::cpu
