// Where ranks that are threads of one process find each other: what the store is to processes. Groups share
// memory of the process, and out-of-band records are plain memory too.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "collectives/locality.h"
#include "collectives/p2p/algorithm/collective_plan.h"
#include "collectives/p2p/transport.h"
#include "collectives/shm/shared_memory.h"
#include "collectives/shm/shm_transport.h"

namespace dtrain {

/// What the ranks of one group have in common. Thread-safe.
class ThreadGroup {
 public:
  ThreadGroup(int size, AllReduceAlgorithm all_reduce);

  int size() const noexcept { return static_cast<int>(hosts_.size()); }
  const ShmLayout& layout() const noexcept { return layout_; }
  const std::shared_ptr<const SharedMemory>& memory() const noexcept { return memory_; }
  const std::string& host_of(int rank) const noexcept { return hosts_[static_cast<std::size_t>(rank)]; }
  /// Once all have arrived.
  std::shared_ptr<const p2p::CollectivePlan> plan() const;

  void put_record(int rank, std::string_view record);
  std::optional<std::string> record_of(int rank) const;
  std::string put_failure(std::string_view reason);
  std::optional<std::string> failure() const;

 private:
  friend class ThreadRendezvous;

  const ShmLayout layout_;
  const std::shared_ptr<const SharedMemory> memory_;
  const AllReduceAlgorithm all_reduce_;
  std::vector<std::string> hosts_;              ///< written while ranks arrive, under the rendezvous's lock
  std::vector<std::uint64_t> identities_ = {};  ///< of the hosts, likewise
  int arrived_ = 0;

  mutable std::mutex mutex_;
  std::vector<std::optional<std::string>> records_;
  std::optional<std::string> failure_;
};

/// Thread-safe. Names may be used again once all ranks of a group have met.
class ThreadRendezvous {
 public:
  /// Collective over the ranks of the group: returns when all have arrived. Throws PeerError naming who has
  /// not when `deadline` passes, UsageError where two come as one rank, or expect other sizes or algorithms.
  std::shared_ptr<ThreadGroup> join(const std::string& name, int rank, int size, const std::string& host,
                                    const Locality& locality, const Deadline& deadline);

 private:
  std::mutex mutex_;
  std::condition_variable complete_;
  std::map<std::string, std::shared_ptr<ThreadGroup>> forming_;
};

/// Endpoints of a group that has met in `rendezvous`, as `rank` sees it.
p2p::Endpoints make_thread_endpoints(std::shared_ptr<ThreadRendezvous> rendezvous,
                                     std::shared_ptr<ThreadGroup> group, int rank, const Locality& locality);

}  // namespace dtrain
