// One NCCL communicator: how its ranks meet through the store, and calls that never block. Knows nothing of
// deadlines of calls or of errors' causes: the watchdog does.
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "collectives/factory.h"
#include "collectives/nccl/nccl_check.h"
#include "collectives/p2p/transport.h"
#include "collectives/peer_processes.h"

namespace dtrain::nccl {

/// Thread-safe. The communicator is non-blocking: every call returns at once, even while connections are
/// made.
class NcclLink final : public p2p::Members {
 public:
  /// Collective. Ranks meet under keys that begin with "nccl/<name>/". Throws PeerError naming who did not
  /// come by `deadline`, DeviceError when NCCL refuses (two ranks on one GPU, say).
  NcclLink(const Bootstrap& bootstrap, const Deadline& deadline);

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return static_cast<int>(hosts_.size()); }
  const std::string& host_of(int rank) const noexcept override {
    return hosts_[static_cast<std::size_t>(rank)];
  }
  // NCCL does not say, and a process that has ended may have done all its calls.
  std::vector<int> lost_peers() noexcept override { return {}; }
  /// Of those on this machine.
  std::vector<int> ended_peers() noexcept override { return processes_.ended(); }

  cudaStream_t stream() const noexcept { return stream_.get(); }

  /// Queues what `call` queues on the stream, and returns when NCCL has really done so (connections are made
  /// at a first call) or `ended` says that the group is dead, which it is sure to become once failure() says
  /// something. Throws DeviceError for a call that NCCL refuses.
  void queue(const std::function<ncclResult_t(ncclComm_t, cudaStream_t)>& call, std::string_view what,
             const std::function<bool()>& ended);
  /// What NCCL found wrong since; nullopt when all is well.
  std::optional<std::string> failure();
  /// Takes everything off the GPU; further calls fail.
  void kill() noexcept;
  /// Leaves in good order: waits until NCCL has flushed, no longer than `deadline`; then kills.
  void finish(const Deadline& deadline) noexcept;

 private:
  std::optional<std::string> failure_now();
  void meet(const Bootstrap& bootstrap, const Deadline& deadline);
  void connect(const Bootstrap& bootstrap, const ncclUniqueId& id, const Deadline& deadline);

  int rank_;
  std::vector<std::string> hosts_;
  PeerProcesses processes_;
  UniqueStream stream_;
  std::mutex mutex_;  // guards comm_: the watchdog may take it away
  UniqueComm comm_;
  std::optional<std::string> failed_call_;
};

}  // namespace dtrain::nccl
