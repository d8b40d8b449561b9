#include "collectives/p2p/transport.h"

namespace dtrain::p2p {
namespace {

class CopiedInbox final : public Inbox {
 public:
  CopiedInbox(std::unique_ptr<Region> region, const std::byte* memory, std::size_t stride)
      : region_(std::move(region)), memory_(memory), stride_(stride) {}

  void expect(int peer, std::uint64_t tag, std::size_t bytes) override {
    region_->receive(peer, tag, static_cast<std::size_t>(peer) * stride_, bytes);
  }
  void wait(Watch& watch) override { region_->wait_receives(watch); }
  const std::byte* message(int peer) const noexcept override {
    return memory_ + static_cast<std::size_t>(peer) * stride_;
  }
  void release() noexcept override {}

 private:
  std::unique_ptr<Region> region_;
  const std::byte* memory_;
  const std::size_t stride_;
};

}  // namespace

std::unique_ptr<Inbox> Transport::inbox(std::byte* memory, std::size_t stride) {
  return std::make_unique<CopiedInbox>(map(memory, stride * static_cast<std::size_t>(size())), memory,
                                       stride);
}

}  // namespace dtrain::p2p
