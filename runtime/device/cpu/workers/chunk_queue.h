// The chunks of one for_chunks() call. Each worker begins with a stretch of its own, the same in every call
// of one shape, so that it finds in its caches what it wrote before; then it helps the others.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>

#include "runtime/device/cpu/workers/workers.h"

namespace dtrain::cpu {

class ChunkQueue {
 public:
  ChunkQueue(std::int64_t chunks, int workers, void* state, detail::ChunkCall call)
      : state_(state),
        call_(call),
        stretches_(std::min<std::size_t>(static_cast<std::size_t>(workers), kMost)) {
    for (std::size_t i = 0; i < stretches_; ++i) {
      const auto n = static_cast<std::int64_t>(stretches_), at = static_cast<std::int64_t>(i);
      stretch_[i].next.store(chunks * at / n, std::memory_order_relaxed);
      stretch_[i].end = chunks * (at + 1) / n;
    }
  }

  /// Takes chunks until none is left. Called once by each worker that comes; any of them may stay away.
  void work(int worker) noexcept {
    for (std::size_t i = 0; i < stretches_; ++i) {
      Stretch& stretch = stretch_[(static_cast<std::size_t>(worker) + i) % stretches_];
      for (;;) {
        const std::int64_t chunk = stretch.next.fetch_add(1, std::memory_order_relaxed);
        if (chunk >= stretch.end) break;
        run(chunk, worker);
      }
    }
  }

  /// When all workers are back: throws what the first chunk that failed threw.
  void finish() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  static constexpr std::size_t kMost = 64;
  struct alignas(64) Stretch {
    std::atomic<std::int64_t> next = 0;
    std::int64_t end = 0;
  };

  void run(std::int64_t chunk, int worker) noexcept {
    try {
      call_(state_, chunk, worker);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (error_ && failed_ < chunk) return;
      failed_ = chunk;
      error_ = std::current_exception();
    }
  }

  void* const state_;
  const detail::ChunkCall call_;
  const std::size_t stretches_;
  std::array<Stretch, kMost> stretch_;
  std::mutex mutex_;
  std::int64_t failed_ = 0;
  std::exception_ptr error_;
};

}  // namespace dtrain::cpu
