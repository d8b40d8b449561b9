// Messages over Gloo's TCP pairs: a full mesh that the ranks build through the store.
#pragma once

#include <gloo/transport/context.h>
#include <gloo/transport/device.h>

#include "collectives/factory.h"
#include "collectives/gloo/wait_interrupter.h"
#include "collectives/p2p/transport.h"

namespace dtrain {

/// What all groups of one gloo communicator and its splits share.
struct GlooContext {
  std::shared_ptr<gloo::transport::Device> device;
  Store* store = nullptr;
  std::string host;
  Duration timeout{};
  Locality locality = {};
};

class GlooTransport final : public p2p::Transport {
 public:
  /// Connects to all others; `prefix` is where this group's keys are in the store. Throws PeerError naming
  /// who did not come.
  GlooTransport(const GlooContext& shared, int rank, int size, std::string prefix, const Deadline& deadline);
  ~GlooTransport() override;

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return size_; }
  std::string_view name() const noexcept override { return "gloo"; }
  std::string_view medium() const noexcept override { return "TCP"; }
  const std::string& host_of(int rank) const noexcept override {
    return hosts_[static_cast<std::size_t>(rank)];
  }
  std::size_t segment_bytes() const noexcept override { return 1024 * 1024; }
  void set_patient(bool) noexcept override {}
  std::unique_ptr<p2p::UnboundBuffer> make_buffer(void* data, std::size_t bytes) override;
  int take_any(std::uint64_t tag, p2p::Watchdog& watchdog) override;
  std::vector<int> lost_peers() noexcept override;
  void close(bool failed) noexcept override;
  p2p::Endpoints split(const std::vector<int>& members, const std::string& name,
                       const Deadline& deadline) override;

 private:
  void connect(const std::string& prefix, const Deadline& deadline);
  void stand_by();

  const GlooContext shared_;
  const int rank_, size_;
  std::vector<std::string> hosts_;
  std::shared_ptr<gloo::transport::Context> context_;
  // One receive a peer that nothing ever answers: it fails when the connection does.
  std::vector<std::unique_ptr<gloo::transport::UnboundBuffer>> standing_;
  std::byte nothing_{};  // what they would receive into
  WaitInterrupter interrupter_;
  bool closed_ = false;
};

/// A transport with its out-of-band keys in the store, over shared memory where all ranks run on this
/// machine; every rank numbers the groups of a name, so that names can be used again.
p2p::Endpoints make_gloo_endpoints(const GlooContext& shared, int rank, int size, const std::string& name,
                                   const Deadline& deadline);

}  // namespace dtrain
