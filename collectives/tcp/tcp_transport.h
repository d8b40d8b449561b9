// Messages over TCP connections of our own, a full mesh, each of them authenticated.
#pragma once

#include <string>
#include <vector>

#include "collectives/p2p/transport.h"
#include "collectives/tcp/tcp_progress_engine.h"
#include "collectives/tcp/wire_up.h"

namespace dtrain::tcp {

class TcpTransport final : public p2p::Transport {
 public:
  TcpTransport(const TcpContext& shared, int rank, PeerConnections connected);
  ~TcpTransport() override { close(false); }

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return static_cast<int>(hosts_.size()); }
  std::string_view name() const noexcept override { return "tcp"; }
  std::string_view medium() const noexcept override { return medium_; }
  const std::string& host_of(int rank) const noexcept override {
    return hosts_[static_cast<std::size_t>(rank)];
  }
  std::size_t segment_bytes() const noexcept override { return 1024 * 1024; }
  void set_patient(bool patient) noexcept override;
  std::unique_ptr<p2p::UnboundBuffer> make_buffer(void* data, std::size_t bytes) override;
  int take_any(std::uint64_t tag, p2p::Watchdog& watchdog) override {
    return engine_.take_any(tag, watchdog);
  }
  p2p::PolledMessages* polled() noexcept override { return &engine_; }
  std::vector<int> lost_peers() noexcept override { return engine_.lost_peers(); }
  void close(bool failed) noexcept override;
  p2p::Endpoints split(const std::vector<int>& members, const std::string& name,
                       const Deadline& deadline) override;

 private:
  const TcpContext shared_;
  const int rank_;
  const std::vector<std::string> hosts_;
  const std::string medium_;
  const bool has_core_;  ///< the machine has a core for each of its ranks
  TcpProgressEngine engine_;
};

/// A transport with its out-of-band keys in the store, over shared memory where all ranks run on this
/// machine. Every rank numbers the groups of a name, so that names can be used again. Collective; throws as
/// wire_up().
p2p::Endpoints make_tcp_endpoints(const TcpContext& shared, int rank, int size, const std::string& name,
                                  const Deadline& deadline);

}  // namespace dtrain::tcp
