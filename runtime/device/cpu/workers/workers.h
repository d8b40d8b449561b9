// The threads of a worker, as CPU kernels use them: work is cut into chunks by its shape, and whichever
// thread is free takes the next one. Chunks whose results are joined never depend on the number of threads
// and are joined in order; only where no sum is cut (columns, pieces of a product) may there be as many as
// threads. So results have the same bits for any number of threads. See
// docs/decisions/062-threads-of-a-worker.md and 087-threads-that-wait-awake.md.
//
//     const std::int64_t images = 128, chunk = 16;
//     for_ranges(images, chunk, ns_an_image, [&](std::int64_t begin, std::int64_t end) { … });
//
//     std::vector<double> sums(chunks);  // a place for each chunk, not for each thread
//     for_chunks(chunks, ns_a_chunk, [&](std::int64_t c, int worker) { sums[c] = … scratch.of(worker) …; });
//     for (const double sum : sums) total += sum;  // in the order of chunks
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/device/cpu/scratch.h"

namespace dtrain::cpu {

/// Threads that for_chunks() computes with when this thread calls it, itself included: at least 1, and 1
/// inside a chunk. Starts as OMP_NUM_THREADS or the number of cores; every thread has its own, and its own
/// team.
int worker_count() noexcept;
/// Sets it for this thread, at least 1. The math library's primitives that are called from here follow.
void set_worker_count(int threads) noexcept;

namespace detail {
/// What set_worker_count() set, also inside a chunk.
int worker_setting() noexcept;
}  // namespace detail

/// This thread computes with at most so many workers for as long as this lives, and so does the math library
/// when called from it, also inside a chunk.
class WorkerLimit {
 public:
  explicit WorkerLimit(std::int64_t most) noexcept : before_(detail::worker_setting()) {
    if (most < before_) set_worker_count(static_cast<int>(most));
  }
  ~WorkerLimit() {
    if (detail::worker_setting() != before_) set_worker_count(before_);
  }
  WorkerLimit(const WorkerLimit&) = delete;
  WorkerLimit& operator=(const WorkerLimit&) = delete;

 private:
  int before_;
};

/// Waking the other threads takes some microseconds: work of less than this stays with the caller.
inline constexpr double kLeastParallelNs = 20'000;

namespace detail {
using ChunkCall = void (*)(void* state, std::int64_t chunk, int worker);
/// Calls `call` for each of `chunks` from all of this thread's team and waits for all of them.
void run_chunks(std::int64_t chunks, void* state, ChunkCall call);
}  // namespace detail

/// Calls fn(chunk, worker) once for each chunk in [0, chunks), on any of this thread's workers and in any
/// order; `worker` in [0, worker_count()) is whose scratch memory to use. chunk_ns: roughly what a chunk
/// takes, in nanoseconds of one thread; it decides only whether the caller does all of them itself, in order.
/// Returns when all are done. Of several chunks that throw, the first one's exception is rethrown; chunks
/// after it may have run.
template <class Function>
void for_chunks(std::int64_t chunks, double chunk_ns, Function&& fn) {
  if (chunks > 1 && static_cast<double>(chunks) * chunk_ns >= kLeastParallelNs && worker_count() > 1) {
    using State = std::remove_reference_t<Function>;
    return detail::run_chunks(
        chunks, const_cast<void*>(static_cast<const void*>(&fn)),
        [](void* state, std::int64_t chunk, int worker) { (*static_cast<State*>(state))(chunk, worker); });
  }
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) fn(chunk, 0);
}

/// The same for stretches of `length` (the last one shorter) of [0, total): fn(begin, end). element_ns: what
/// one of `total` takes.
template <class Function>
void for_ranges(std::int64_t total, std::int64_t length, double element_ns, Function&& fn) {
  const std::int64_t chunks = (total + length - 1) / length;
  for_chunks(chunks, static_cast<double>(std::min(total, length)) * element_ns,
             [&](std::int64_t chunk, int) { fn(chunk * length, std::min(total, (chunk + 1) * length)); });
}

/// Scratch memory for each worker of a kernel's thread, kept from call to call. A worker is the first to
/// write its own, so that its pages are near it.
class WorkerScratch {
 public:
  /// Call before for_chunks(), which may then ask of() for any worker.
  void prepare() { blocks_.resize(std::max(blocks_.size(), static_cast<std::size_t>(worker_count()))); }
  Scratch& of(int worker) noexcept { return blocks_[static_cast<std::size_t>(worker)]; }

 private:
  std::vector<Scratch> blocks_;
};

}  // namespace dtrain::cpu
