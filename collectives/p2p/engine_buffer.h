// The buffer of a transport whose engine moves messages of any bytes and counts those that are not done.
#pragma once

#include "collectives/p2p/transport.h"

namespace dtrain::p2p {

/// `Engine` has send and receive (peer, tag, data, bytes, pending), wait and forget (pending). Both are
/// borrowed.
template <class Engine>
class EngineBuffer final : public UnboundBuffer {
 public:
  EngineBuffer(Engine& engine, void* data) : engine_(engine), data_(static_cast<std::byte*>(data)) {}
  ~EngineBuffer() override {
    if (sends_ > 0) engine_.forget(sends_);
    if (receives_ > 0) engine_.forget(receives_);
  }

  void send(int peer, std::uint64_t tag, std::size_t offset, std::size_t bytes) override {
    engine_.send(peer, tag, data_ + offset, bytes, sends_);
  }
  void receive(int peer, std::uint64_t tag, std::size_t offset, std::size_t bytes) override {
    engine_.receive(peer, tag, data_ + offset, bytes, receives_);
  }
  void wait_sends(Watchdog& watchdog) override { engine_.wait(sends_, watchdog); }
  void wait_receives(Watchdog& watchdog) override { engine_.wait(receives_, watchdog); }

 private:
  Engine& engine_;
  std::byte* const data_;
  int sends_ = 0, receives_ = 0;
};

}  // namespace dtrain::p2p
