// Messages through memory between ranks of one machine, and to all others the way by which the group met.
// Everything else (who is there, who is gone, new groups) stays with that in any case.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collectives/p2p/transport.h"
#include "collectives/shm/shared_memory.h"
#include "collectives/shm/shm_progress_engine.h"

namespace dtrain {

class ShmTransport final : public p2p::Transport {
 public:
  /// `memory`, zeros at first, is shared by all ranks of `context`.
  ShmTransport(std::unique_ptr<p2p::Context> context, std::shared_ptr<const SharedMemory> memory,
               const ShmLayout& layout);
  /// `memory` is shared by `members` of the group, ascending, this rank among them; where there are more
  /// ranks, messages to them go through `met`, which must be polled().
  ShmTransport(std::unique_ptr<p2p::Transport> met, std::shared_ptr<const SharedMemory> memory,
               const ShmLayout& layout, const std::vector<int>& members);

  int rank() const noexcept override { return context_->rank(); }
  int size() const noexcept override { return context_->size(); }
  std::string_view name() const noexcept override { return context_->name(); }
  std::string_view medium() const noexcept override { return medium_; }
  const std::string& host_of(int rank) const noexcept override { return context_->host_of(rank); }
  std::size_t segment_bytes() const noexcept override { return layout_.slot_bytes(); }
  void set_patient(bool patient) noexcept override;
  std::unique_ptr<p2p::UnboundBuffer> make_buffer(void* data, std::size_t bytes) override;
  std::unique_ptr<p2p::ReceiveBuffers> receive_buffers(std::byte* memory, std::size_t stride) override;
  int take_any(std::uint64_t tag, p2p::Watchdog& watchdog) override {
    return engine_.take_any(tag, watchdog);
  }
  std::vector<int> lost_peers() noexcept override { return context_->lost_peers(); }
  void close(bool failed) noexcept override;
  p2p::Endpoints split(const std::vector<int>& members, const std::string& name,
                       const Deadline& deadline) override {
    return context_->split(members, name, deadline);
  }

 private:
  p2p::PolledMessages* const others_;  ///< null: all ranks share the memory
  const std::string medium_;
  const std::unique_ptr<p2p::Context> context_;
  const std::shared_ptr<const SharedMemory> memory_;
  const ShmLayout layout_;
  ShmProgressEngine engine_;
  const bool has_core_;  ///< the machine has a core for each rank on it
};

}  // namespace dtrain
