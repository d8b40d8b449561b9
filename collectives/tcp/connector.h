// A rank's way to one rank below it: attempts to connect and to be introduced, one after another, until one
// succeeds. What ranks leave in the store to be found.
#pragma once

#include <poll.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/net/endpoint.h"
#include "collectives/tcp/handshake.h"

namespace dtrain::tcp {

/// What a rank leaves in the store.
struct PeerAddress {
  std::string host;     ///< its machine's name
  std::string address;  ///< where it listens
  std::string nonce;    ///< of its link_secret()
  Protection protection = Protection::authenticate;

  std::string text() const;
  /// Throws PeerError when `text` is no address.
  static PeerAddress parse(const std::string& text);
};

/// Used by one thread. Never blocks.
class Connector {
 public:
  Connector(Purpose purpose, const Digest& secret, const SocketAddress& address)
      : purpose_(std::move(purpose)), secret_(secret), address_(address) {}

  int peer() const noexcept { return purpose_.to; }
  /// Adds what is to be waited for, beginning an attempt when it is time for one.
  void ask(std::vector<pollfd>& polled);
  /// When there is something to do even if nothing happens.
  Duration next(TimePoint now) const noexcept;
  /// Does what can be done after a poll. The connection, once; then this is done.
  std::optional<Connection> serve(const std::vector<pollfd>& polled);
  const std::string& last_failure() const noexcept { return last_failure_; }

 private:
  void begin();
  void read();
  void greet();
  bool send(const std::string& bytes);
  void fail(std::string why);

  Purpose purpose_;
  Digest secret_;
  SocketAddress address_;
  UniqueFd fd_;                           ///< of the attempt under way
  std::unique_ptr<Initiator> initiator_;  ///< none while it connects
  std::size_t asked_ = 0;                 ///< index of its pollfd; kNone
  TimePoint expires_{}, again_{};
  Duration pause_ = std::chrono::milliseconds(2);
  bool done_ = false;
  std::string last_failure_ = "not tried";
};

}  // namespace dtrain::tcp
