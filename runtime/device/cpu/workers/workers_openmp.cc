// workers.h on OpenMP, whose threads the math library uses too: one team. The only file that is compiled with
// OpenMP.
#include <omp.h>

#include "runtime/device/cpu/workers/chunk_queue.h"
#include "runtime/device/cpu/workers/workers.h"

namespace dtrain::cpu {

int worker_count() noexcept { return omp_in_parallel() != 0 ? 1 : omp_get_max_threads(); }

int detail::worker_setting() noexcept { return omp_get_max_threads(); }

void set_worker_count(int threads) noexcept { omp_set_num_threads(std::max(threads, 1)); }

void detail::run_chunks(std::int64_t chunks, void* state, ChunkCall call) {
  const int workers = worker_count();
  ChunkQueue queue(chunks, workers, state, call);
  // Always the whole team: a smaller one would end the threads that it leaves out.
#pragma omp parallel num_threads(workers)
  queue.work(omp_get_thread_num());
  queue.finish();
}

}  // namespace dtrain::cpu
