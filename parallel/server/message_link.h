// Messages over one authenticated connection between a worker and a server. Internal to the two ends.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "cluster/net/secure_stream.h"
#include "parallel/server/protocol.h"

namespace dtrain::server {

/// Used by one thread. Never blocks. What fails throws p2p::LinkLost: the connection is over.
class MessageLink {
 public:
  /// `last_kind`: messages that come in are of kinds from 1 to it. `peer`: the other end's number, for
  /// errors.
  MessageLink(int peer, net::SecureStream stream, std::uint8_t last_kind);
  ~MessageLink();
  MessageLink(MessageLink&&) noexcept;

  int fd() const noexcept;
  /// Whether poll(2) should tell when the socket takes more.
  bool sends() const noexcept;
  /// Sets the counts of its head, keeps it until it is sent.
  void send(Message message);
  /// Sends what the socket takes.
  void flush();
  /// The next message that has come whole.
  std::optional<Message> take();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace dtrain::server
