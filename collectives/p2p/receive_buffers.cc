#include "collectives/p2p/transport.h"

namespace dtrain::p2p {
namespace {

class CopiedReceiveBuffers final : public ReceiveBuffers {
 public:
  CopiedReceiveBuffers(std::unique_ptr<UnboundBuffer> buffer, const std::byte* memory, std::size_t stride)
      : buffer_(std::move(buffer)), memory_(memory), stride_(stride) {}

  void expect(int peer, std::uint64_t tag, std::size_t bytes) override {
    buffer_->receive(peer, tag, static_cast<std::size_t>(peer) * stride_, bytes);
  }
  void wait(Watchdog& watchdog) override { buffer_->wait_receives(watchdog); }
  const std::byte* message(int peer) const noexcept override {
    return memory_ + static_cast<std::size_t>(peer) * stride_;
  }
  void release() noexcept override {}

 private:
  std::unique_ptr<UnboundBuffer> buffer_;
  const std::byte* memory_;
  const std::size_t stride_;
};

}  // namespace

std::unique_ptr<ReceiveBuffers> Transport::receive_buffers(std::byte* memory, std::size_t stride) {
  return std::make_unique<CopiedReceiveBuffers>(
      make_buffer(memory, stride * static_cast<std::size_t>(size())), memory, stride);
}

}  // namespace dtrain::p2p
