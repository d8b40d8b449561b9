// Serves PyTorch's TCPStore for as long as the launcher runs, whatever becomes of the workers, as torchrun's
// agent does. The protocol knows no secret: anyone who reaches the port can read and write.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <unordered_map>

#include "launcher/agent_store/torch_store.h"
#include "runtime/base/clock.h"
#include "runtime/base/fd.h"

namespace dtrain::launcher {

class AgentStore {
 public:
  /// A connection that has not shown by then that it speaks the protocol is closed.
  static constexpr std::chrono::seconds kPatience{30};

  /// Serves on `socket`, which listens on `port` and does not block, in a thread of its own that takes no
  /// signals. Throws SystemError.
  AgentStore(UniqueFd socket, std::uint16_t port, const TorchStore::Limits& limits = {});
  /// Closes all connections.
  ~AgentStore();
  AgentStore(const AgentStore&) = delete;
  AgentStore& operator=(const AgentStore&) = delete;

  std::uint16_t port() const noexcept { return port_; }
  /// Forgets all values, for restarted workers, which use the same keys.
  void clear();

 private:
  struct Connection {
    UniqueFd fd;
    std::uint32_t watched = 0;
    TimePoint since{};
  };

  void run();
  bool take_orders();
  void take_clients();
  void rest();
  void read_from(TorchStore::ClientId id);
  void send_replies();
  void send_to(TorchStore::ClientId id);
  void watch(TorchStore::ClientId id);
  void drop(TorchStore::ClientId id);
  void look_around();
  void poke() const;

  const std::uint16_t port_;
  UniqueFd socket_, poke_, epoll_;
  std::atomic<bool> ends_{false}, clears_{false};
  TorchStore store_;  // what follows is the thread's
  std::unordered_map<TorchStore::ClientId, Connection> connections_;
  TorchStore::ClientId next_id_;
  TimePoint next_look_{};
  bool rests_ = false;  // no descriptor is left for another client
  std::thread thread_;
};

}  // namespace dtrain::launcher
