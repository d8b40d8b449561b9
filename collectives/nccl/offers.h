// Offers of messages, announced through the store: NCCL cannot receive from anyone. What is offered then goes
// through NCCL as any message does.
#pragma once

#include <map>
#include <string>

#include "cluster/store/store.h"
#include "collectives/nccl/watchdog.h"

namespace dtrain::nccl {

/// Used by one thread. One queue for each rank, label, dtype and count: numbered keys, in which the next
/// offer's rank is found.
class Offers {
 public:
  /// `store` outlives it; its keys begin with `prefix`. `timeout` bounds each call.
  Offers(Store& store, std::string prefix, int rank, Duration timeout)
      : store_(store), prefix_(std::move(prefix)), rank_(rank), timeout_(timeout) {}

  /// Before the offer is sent. Throws PeerError when the store is lost.
  void announce(const p2p::Call& offer, const Watchdog& watchdog);
  /// Waits for the next offer of this kind to this rank; gives whose it is. Throws PeerError when the group
  /// ends or the timeout passes.
  int await(const p2p::Call& taker, Watchdog& watchdog);

 private:
  std::string queue_of(const p2p::Call& call, int to) const;

  Store& store_;
  const std::string prefix_;
  const int rank_;
  const Duration timeout_;
  std::map<std::string, std::int64_t> taken_;  ///< by queue
};

}  // namespace dtrain::nccl
