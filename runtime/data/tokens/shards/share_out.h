// Pieces of work for several threads.
#pragma once

#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace dtrain {

/// Calls `work(worker, item)` for each of `items`, each worker (at least one) in a thread of its own and each
/// item by whichever worker is free. Returns when all are done; throws the first error.
template <class Item, class Worker, class Work>
void share_out(std::vector<Item>& items, std::vector<Worker>& workers, const Work& work) {
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::exception_ptr error;
  const auto run = [&](Worker& worker) noexcept {
    try {
      for (std::size_t i = next++; i < items.size(); i = next++) work(worker, items[i]);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 1; i < workers.size(); ++i) threads.emplace_back([&, i] { run(workers[i]); });
    run(workers[0]);
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace dtrain
