// The way to one listening process: attempts to connect and to be let in, one after another, over all of its
// addresses, until one succeeds.
#pragma once

#include <poll.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/net/endpoint.h"
#include "cluster/net/handshake.h"

namespace dtrain::net {

/// Used by one thread. Never blocks but in run(). An attempt that fails is made again, at first after
/// milliseconds, then every 100 ms.
class Connector {
 public:
  /// At least one of `addresses`; they are tried in turn. Throws UsageError when `identity` is too long.
  Connector(std::vector<SocketAddress> addresses, std::string_view secret, Identity identity);

  /// Adds what is to be waited for, beginning an attempt when it is time for one.
  void ask(std::vector<pollfd>& polled);
  /// When there is something to do even if nothing happens.
  Duration next(TimePoint now) const noexcept;
  /// Does what can be done after a poll. The stream, once; then this is done.
  std::optional<SecureStream> serve(const std::vector<pollfd>& polled);
  /// Blocks until there is a stream; nothing when `deadline` passes first, or at a refusal().
  std::optional<SecureStream> run(const Deadline& deadline);

  /// Why there is no stream yet: "10.0.0.1:29500: Connection refused".
  std::string why() const;
  /// What answers there, as it would again: another service, another job's, another version's. Empty while
  /// there has been nothing like that. Attempts continue anyway.
  const std::string& refusal() const noexcept { return refusal_; }

 private:
  void begin();
  void greet();
  void read();
  bool send(const std::string& bytes);
  void fail(std::string why);
  const SocketAddress& address() const noexcept { return addresses_[address_]; }

  std::vector<SocketAddress> addresses_;
  std::size_t address_ = 0;  ///< index of the one that is tried
  std::string secret_;
  Identity identity_;
  UniqueFd fd_;                           ///< of the attempt under way
  std::unique_ptr<Initiator> initiator_;  ///< none while it connects
  std::size_t asked_ = 0;                 ///< index of its pollfd; kNone
  TimePoint expires_{}, again_{};
  Duration pause_ = std::chrono::milliseconds(2);
  bool done_ = false;
  std::string last_failure_ = "not tried", refusal_;
};

}  // namespace dtrain::net
