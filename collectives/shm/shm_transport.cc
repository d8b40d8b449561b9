#include "collectives/shm/shm_transport.h"

#include <fmt/format.h>
#include <unistd.h>

#include <numeric>
#include <utility>

#include "collectives/p2p/engine_buffer.h"

namespace dtrain {
namespace {

// Messages that fit a slot are read there.
class ShmReceiveBuffers final : public p2p::ReceiveBuffers {
 public:
  ShmReceiveBuffers(ShmProgressEngine& engine, std::byte* memory, std::size_t stride, int size)
      : engine_(engine), memory_(memory), stride_(stride), messages_(static_cast<std::size_t>(size)) {}
  ~ShmReceiveBuffers() override {
    release();
    if (pending_ > 0) engine_.forget(pending_);
  }

  void expect(int peer, std::uint64_t tag, std::size_t bytes) override {
    const auto index = static_cast<std::size_t>(peer);
    engine_.receive_in_place(peer, tag, memory_ + index * stride_, bytes, pending_, messages_[index]);
  }
  void wait(p2p::Watchdog& watchdog) override { engine_.wait(pending_, watchdog); }
  const std::byte* message(int peer) const noexcept override {
    return messages_[static_cast<std::size_t>(peer)];
  }
  void release() noexcept override {
    for (std::size_t peer = 0; peer < messages_.size(); ++peer) {
      if (std::exchange(messages_[peer], nullptr) != nullptr) engine_.release(static_cast<int>(peer));
    }
  }

 private:
  ShmProgressEngine& engine_;
  std::byte* const memory_;
  const std::size_t stride_;
  std::vector<const std::byte*> messages_;  ///< where they lie, by rank; null: none
  int pending_ = 0;
};

std::vector<int> all_ranks(int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

// All cores of the machine count, not those this process is bound to: bound ranks have cores of their own.
ShmTransport::ShmTransport(std::unique_ptr<p2p::Context> context, std::shared_ptr<const SharedMemory> memory,
                           const ShmLayout& layout)
    : others_(nullptr),
      medium_("shared memory"),
      context_(std::move(context)),
      memory_(std::move(memory)),
      layout_(layout),
      engine_(memory_->data(), layout_, context_->rank(), all_ranks(context_->size()), nullptr),
      has_core_(context_->size() <= ::sysconf(_SC_NPROCESSORS_ONLN)) {}

ShmTransport::ShmTransport(std::unique_ptr<p2p::Transport> met, std::shared_ptr<const SharedMemory> memory,
                           const ShmLayout& layout, const std::vector<int>& members)
    : others_(static_cast<int>(members.size()) < met->size() ? met->polled() : nullptr),
      medium_(others_ == nullptr ? "shared memory" : fmt::format("shared memory and {}", met->medium())),
      context_(std::move(met)),
      memory_(std::move(memory)),
      layout_(layout),
      engine_(memory_->data(), layout_, context_->rank(), members, others_),
      has_core_(static_cast<long>(members.size()) <= ::sysconf(_SC_NPROCESSORS_ONLN)) {}

void ShmTransport::set_patient(bool patient) noexcept {
  engine_.set_patience(!patient    ? p2p::Patience::none
                       : has_core_ ? p2p::Patience::alone
                                   : p2p::Patience::waiting);
}

std::unique_ptr<p2p::UnboundBuffer> ShmTransport::make_buffer(void* data, std::size_t) {
  return std::make_unique<p2p::EngineBuffer<ShmProgressEngine>>(engine_, data);
}

std::unique_ptr<p2p::ReceiveBuffers> ShmTransport::receive_buffers(std::byte* memory, std::size_t stride) {
  return std::make_unique<ShmReceiveBuffers>(engine_, memory, stride, size());
}

void ShmTransport::close(bool failed) noexcept {
  engine_.close(failed);
  context_->close(failed);
}

}  // namespace dtrain
