// workers.h where there is no OpenMP, and under the thread sanitizer, which cannot see how OpenMP's threads
// wait: each thread that calls for_chunks() has a team of its own, which sleeps between calls.
#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <stop_token>
#include <thread>

#include "runtime/base/options.h"
#include "runtime/device/cpu/workers/chunk_queue.h"
#include "runtime/device/cpu/workers/workers.h"

// OpenMP's, where a library brought its runtime along.
extern "C" __attribute__((weak)) void omp_set_num_threads(int threads);

namespace dtrain::cpu {
namespace {

int default_count() noexcept {
  const char* const text = std::getenv("OMP_NUM_THREADS");
  const auto given = text != nullptr ? parse_integer(text) : std::nullopt;
  if (given && *given > 0 && *given <= 4096) return static_cast<int>(*given);
  return static_cast<int>(std::max(std::thread::hardware_concurrency(), 1U));
}

/// Worker 0 is the caller of run(); the others are threads that wait for the next queue.
class Team {
 public:
  explicit Team(int workers) {
    for (int worker = 1; worker < workers; ++worker) {
      threads_.emplace_back([this, worker](const std::stop_token& stop) { serve(stop, worker); });
    }
  }

  int workers() const noexcept { return static_cast<int>(threads_.size()) + 1; }

  void run(ChunkQueue& queue) {
    {
      const std::lock_guard lock(mutex_);
      queue_ = &queue;
      ++generation_;
    }
    called_.notify_all();
    queue.work(0);
    std::unique_lock lock(mutex_);
    queue_ = nullptr;  // a thread that has not begun need not
    idle_.wait(lock, [&] { return busy_ == 0; });
  }

 private:
  void serve(const std::stop_token& stop, int worker);

  std::mutex mutex_;
  std::condition_variable_any called_;
  std::condition_variable idle_;
  ChunkQueue* queue_ = nullptr;
  std::uint64_t generation_ = 0;  ///< of queues
  int busy_ = 0;
  std::vector<std::jthread> threads_;  ///< the last member: they end before what they use
};

struct ThreadState {
  int count = default_count();
  bool inside = false;  ///< a chunk
  std::unique_ptr<Team> team;
};
// Per thread, as OpenMP has it: kernels are called from several threads, each with its share of the cores.
thread_local ThreadState here;

void Team::serve(const std::stop_token& stop, int worker) {
  here.inside = true;
  std::uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  while (called_.wait(lock, stop, [&] { return queue_ != nullptr && generation_ != seen; })) {
    seen = generation_;
    ChunkQueue* const queue = queue_;
    ++busy_;
    lock.unlock();
    queue->work(worker);
    lock.lock();
    if (--busy_ == 0) idle_.notify_one();
  }
}

}  // namespace

int worker_count() noexcept { return here.inside ? 1 : here.count; }

int detail::worker_setting() noexcept { return here.count; }

void set_worker_count(int threads) noexcept {
  here.count = std::max(threads, 1);
  if (omp_set_num_threads != nullptr) omp_set_num_threads(here.count);
}

void detail::run_chunks(std::int64_t chunks, void* state, ChunkCall call) {
  const int workers = worker_count();
  if (!here.team || here.team->workers() != workers) {
    here.team.reset();
    here.team = std::make_unique<Team>(workers);
  }
  ChunkQueue queue(chunks, workers, state, call);
  here.inside = true;
  here.team->run(queue);
  here.inside = false;
  queue.finish();
}

}  // namespace dtrain::cpu
