// Pieces of work, or of texts, for several threads.
#pragma once

#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "runtime/data/tokens/shards/document_reader.h"

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
    try {
      for (std::size_t i = 1; i < workers.size(); ++i) threads.emplace_back([&, i] { run(workers[i]); });
    } catch (const std::system_error&) {
      // A limit leaves no room for more; those that are there do it all.
    }
    run(workers[0]);
  }
  if (error) std::rethrow_exception(error);
}

/// Reads `reader` to its end. A batch of pieces (a DocumentPiece, or what derives from one) is a few for each
/// of `workers`: share_out() has them worked on, then `done(batch)` sees them in the order of the texts. The
/// last batch is empty.
template <class Piece, class Worker, class Work, class Done>
void share_out_texts(DocumentReader& reader, std::vector<Worker>& workers, const Work& work,
                     const Done& done) {
  constexpr std::size_t kPieceBytes = 1 << 20, kPiecesAWorker = 4;
  std::vector<Piece> batch;
  do {
    batch.resize(workers.size() * kPiecesAWorker);
    std::size_t count = 0;
    while (count < batch.size() && reader.next(batch[count], kPieceBytes)) ++count;
    batch.resize(count);
    share_out(batch, workers, work);
    done(batch);
  } while (!batch.empty());
}

}  // namespace dtrain
