// A rank's listening socket while its group comes together: everybody who connects is served on their own, a
// bounded number at a time, each for a bounded time; only ranks of the group get in.
#pragma once

#include <poll.h>

#include <list>
#include <optional>
#include <string>
#include <vector>

#include "cluster/net/endpoint.h"
#include "cluster/net/token.h"
#include "collectives/tcp/handshake.h"
#include "runtime/base/log.h"

namespace dtrain::tcp {

/// A rank that came and proved itself.
struct AcceptedPeer {
  int from;
  Connection connection;
};

/// Used by one thread. Never blocks but for the look-up of its own address.
class Acceptor {
 public:
  /// Listens on a free port of `host`; `purpose.from` is not known yet. For the last rank of a group, to
  /// which nobody connects, it stays shut. Throws as listen_on, and UsageError when other machines can reach
  /// the port and there is no token.
  Acceptor(const std::string& host, Purpose purpose, int size, const std::optional<Token>& token,
           const Deadline& deadline);

  /// "10.0.0.1:34567", also where it is shut (then without a use).
  const std::string& address() const noexcept { return address_; }
  /// Random, 64 hexadecimal digits; goes into the secret of who connects here.
  const std::string& nonce() const noexcept { return nonce_; }

  /// Adds what is to be waited for.
  void ask(std::vector<pollfd>& polled);
  /// Serves everybody after a poll; gives who got in.
  std::vector<AcceptedPeer> serve(const std::vector<pollfd>& polled);
  /// Logs how many connections were rejected, if any were.
  void report(Log& log, const std::string& group) const;

 private:
  struct PendingConnection {
    UniqueFd fd;
    Responder responder;
    TimePoint expires;
    bool silent;
    std::size_t asked;
    bool is_open;
  };

  void accept_some();
  void admit(UniqueFd fd);
  bool evict();
  void advance(PendingConnection& pending, std::vector<AcceptedPeer>& accepted);
  void reject(PendingConnection& pending, std::string_view why);

  const Purpose purpose_;
  const int size_;
  std::string address_, nonce_;
  std::size_t max_pending_ = 0;
  Digest secret_;
  UniqueFd listener_;
  std::size_t asked_ = 0;
  std::list<PendingConnection> pending_;  ///< the oldest first
  std::size_t rejected_ = 0;
  std::string last_rejected_;
};

}  // namespace dtrain::tcp
