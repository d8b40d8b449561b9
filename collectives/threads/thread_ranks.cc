#include "collectives/thread_ranks.h"

#include <fmt/format.h>

#include <exception>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

#include "collectives/backends.h"
#include "collectives/factory.h"
#include "collectives/p2p/p2p_communicator.h"
#include "collectives/threads/thread_rendezvous.h"
#include "runtime/base/error.h"
#include "runtime/base/start_thread.h"

namespace dtrain {
namespace {

/// The first exception that is nobody else's fault, else the first.
class FirstCause {
 public:
  void add(std::exception_ptr error, bool is_consequence) {
    const std::lock_guard lock(mutex_);
    auto& place = is_consequence ? consequence_ : cause_;
    if (!place) place = std::move(error);
  }
  void rethrow() const {
    if (cause_) std::rethrow_exception(cause_);
    if (consequence_) std::rethrow_exception(consequence_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr cause_, consequence_;
};

void run_rank(const Bootstrap& bootstrap, Log& log, const std::function<void(Communicator&)>& body,
              FirstCause& first) noexcept {
  std::unique_ptr<Communicator> communicator;
  try {
    communicator = make_communicator(Backend::threads, bootstrap, log);
    body(*communicator);
  } catch (const PeerError&) {
    first.add(std::current_exception(), true);
  } catch (const std::exception& error) {
    first.add(std::current_exception(), false);
    if (communicator) communicator->abort(error.what());
  }
}

}  // namespace

std::shared_ptr<ThreadRendezvous> make_thread_rendezvous() { return std::make_shared<ThreadRendezvous>(); }

std::unique_ptr<Communicator> make_thread_communicator(const Bootstrap& bootstrap, Log& log) {
  if (bootstrap.rendezvous == nullptr) {
    throw UsageError(
        "backend threads: expected a rendezvous that the ranks share, got none; start them with "
        "run_thread_ranks(), or give all of them one make_thread_rendezvous()");
  }
  auto group = bootstrap.rendezvous->join(bootstrap.name, bootstrap.rank, bootstrap.size, bootstrap.host,
                                          bootstrap.locality, Deadline::after(bootstrap.timeout));
  return p2p::make_p2p_communicator(
      make_thread_endpoints(bootstrap.rendezvous, std::move(group), bootstrap.rank, bootstrap.locality),
      bootstrap.name, bootstrap.timeout, log, bootstrap.spans);
}

void run_thread_ranks(int size, const ThreadRanksOptions& options, Log& log,
                      const std::function<void(Communicator&)>& body) {
  if (size < 1) throw UsageError(fmt::format("thread ranks: expected at least one, got {}", size));
  Bootstrap bootstrap;
  bootstrap.size = size;
  bootstrap.timeout = options.timeout;
  bootstrap.locality.all_reduce = options.all_reduce;
  bootstrap.rendezvous = make_thread_rendezvous();
  FirstCause first;
  std::promise<bool> are_all_there;  // before that none begins: the others would wait for one that is missing
  const std::shared_future<bool> may_begin = are_all_there.get_future().share();
  std::vector<std::thread> threads;
  try {
    for (int rank = 0; rank < size; ++rank) {
      bootstrap.rank = rank;
      bootstrap.spans = options.spans ? options.spans(rank) : nullptr;
      threads.push_back(start_thread(fmt::format("dtrain-rank-{}", rank), [&, bootstrap, may_begin] {
        if (may_begin.get()) run_rank(bootstrap, log, body, first);
      }));
    }
  } catch (...) {
    first.add(std::current_exception(), false);
  }
  are_all_there.set_value(threads.size() == static_cast<std::size_t>(size));
  for (std::thread& thread : threads) thread.join();
  first.rethrow();
}

}  // namespace dtrain
