// workers.h on threads of our own, and the math library's number of threads, which is the same: its own
// threads compute when none of ours do. See docs/decisions/062-threads-of-a-worker.md.
#include "runtime/device/cpu/workers/workers.h"

#include <cstdlib>
#include <memory>
#include <thread>

#include "runtime/base/options.h"
#include "runtime/device/cpu/workers/chunk_queue.h"
#include "runtime/device/cpu/workers/rest.h"
#include "runtime/device/cpu/workers/team.h"

// OpenMP's, whose threads the math library computes with. Weak where only that library may have brought it.
#if defined(DTRAIN_HAVE_OPENMP)
extern "C" void omp_set_num_threads(int threads);
extern "C" int omp_get_max_threads();
#else
extern "C" __attribute__((weak)) void omp_set_num_threads(int threads);
#endif

namespace dtrain::cpu {
namespace {

int default_count() noexcept {
#if defined(DTRAIN_HAVE_OPENMP)
  return std::max(omp_get_max_threads(), 1);
#else
  const char* const text = std::getenv("OMP_NUM_THREADS");
  const auto given = text != nullptr ? parse_integer(text) : std::nullopt;
  if (given && *given > 0 && *given <= 4096) return static_cast<int>(*given);
  return static_cast<int>(std::max(std::thread::hardware_concurrency(), 1U));
#endif
}

void limit_library(int threads) noexcept {
#if !defined(DTRAIN_HAVE_OPENMP)
  if (omp_set_num_threads == nullptr) return;
#endif
  omp_set_num_threads(threads);
}

struct ThreadState {
  int count = default_count();
  bool inside = false;  ///< a chunk
  std::unique_ptr<Team> team;
};
// Per thread: kernels are called from several threads, each with its share of the cores.
thread_local ThreadState here;

void begin_thread() {
  here.inside = true;
  limit_library(1);
}

}  // namespace

int worker_count() noexcept { return here.inside ? 1 : here.count; }

int detail::worker_setting() noexcept { return here.count; }

void set_worker_count(int threads) noexcept {
  here.count = std::max(threads, 1);
  if (!here.inside) limit_library(here.count);
}

void rest_workers() noexcept {
  if (here.team && !here.inside) here.team->rest();
}

void detail::run_chunks(std::int64_t chunks, void* state, ChunkCall call) {
  if (!here.team) here.team = std::make_unique<Team>();
  ChunkQueue queue(chunks, here.count, state, call);
  here.inside = true;
  limit_library(1);
  try {
    here.team->run(queue, here.count, begin_thread);
  } catch (...) {
    here.inside = false;
    limit_library(here.count);
    throw;
  }
  here.inside = false;
  limit_library(here.count);
  queue.finish();
}

}  // namespace dtrain::cpu
