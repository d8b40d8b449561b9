// Messages over MPI's non-blocking sends and receives, polled: nothing in here blocks inside MPI, so a dead
// or stopped peer ends in an error and not in a hang.
#pragma once

#include <mpi.h>

#include <memory>
#include <string>
#include <vector>

#include "collectives/mpi/mpi_runtime.h"
#include "collectives/mpi_module.h"
#include "collectives/p2p/backoff.h"
#include "collectives/p2p/transport.h"
#include "collectives/peer_processes.h"

namespace dtrain {

/// What all groups of one mpi communicator and its splits share.
struct MpiContext {
  std::shared_ptr<MpiRuntime> runtime;
  std::string host;
  Locality locality = {};
  PreferMemory prefer_memory = nullptr;
};

class MpiTransport final : public p2p::Transport {
 public:
  /// Collective over `comm`: ranks tell each other host and process id. Throws PeerError when `deadline`
  /// passes.
  MpiTransport(const MpiContext& shared, std::shared_ptr<OwnedComm> comm, const Deadline& deadline);
  ~MpiTransport() override;

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return size_; }
  std::string_view name() const noexcept override { return "mpi"; }
  std::string_view medium() const noexcept override { return "MPI"; }
  const std::string& host_of(int rank) const noexcept override {
    return hosts_[static_cast<std::size_t>(rank)];
  }
  std::size_t segment_bytes() const noexcept override { return 1024 * 1024; }
  void set_patient(bool patient) noexcept override;
  std::unique_ptr<p2p::UnboundBuffer> make_buffer(void* data, std::size_t bytes) override;
  int take_any(std::uint64_t tag, p2p::Watchdog& watchdog) override;
  std::vector<int> lost_peers() noexcept override { return processes_.ended(); }
  void close(bool failed) noexcept override;
  p2p::Endpoints split(const std::vector<int>& members, const std::string& name,
                       const Deadline& deadline) override;

 private:
  void introduce(const Deadline& deadline);

  const MpiContext shared_;
  std::shared_ptr<OwnedComm> comm_;
  int rank_ = 0, size_ = 1;
  std::vector<std::string> hosts_;
  PeerProcesses processes_;
  p2p::Patience patience_ = p2p::Patience::none;
  bool has_core_ = false;  ///< the machine has a core for each of its ranks
  bool closed_ = false;
};

/// Transport and out-of-band store over private duplicates of `comm`, over shared memory where all ranks run
/// on this machine. Collective. `name` is the group's, the same on all ranks.
p2p::Endpoints make_mpi_endpoints(const MpiContext& shared, MPI_Comm comm, const std::string& name,
                                  const Deadline& deadline);

}  // namespace dtrain
