// A listening socket that anyone can reach: each connection is served separately, a bounded number at a
// time, each for a bounded time; only those get in who prove themselves and are admitted.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/net/endpoint.h"
#include "cluster/net/handshake.h"

namespace dtrain::net {

struct AcceptorLimits {
  /// Connections that have not authenticated yet, at most a quarter of the descriptors that this process may
  /// open; the oldest goes when one more comes, one that has said nothing first.
  std::size_t max_pending = 256;
  /// So many more, for peers that may all come at once.
  std::size_t expected = 0;
  std::chrono::milliseconds handshake_timeout{5000};
};

/// What has become of connections since the start.
struct AcceptorCounts {
  std::uint64_t accepted = 0;       ///< by the kernel
  std::uint64_t authenticated = 0;  ///< got in
  std::uint64_t refused = 0;        ///< said something wrong, or were not admitted
  std::uint64_t timed_out = 0;      ///< did not authenticate in time
  std::uint64_t evicted = 0;        ///< made room for newer ones
  std::uint64_t gone = 0;           ///< closed before they had authenticated

  std::uint64_t rejected() const noexcept { return refused + timed_out + evicted + gone; }
};

/// One that has proved itself.
struct AcceptedPeer {
  Identity identity;
  SecureStream stream;
};

/// Used by one thread. Never blocks.
class Acceptor {
 public:
  /// Serves on `listener`. `secret` and `protection`: what both ends must hold and want. `admit`: see there.
  Acceptor(Listener listener, std::string_view secret, Protection protection, Admit admit,
           AcceptorLimits limits = {});
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  const SocketAddress& address() const noexcept { return listener_.address; }
  /// Readable for poll(2) and epoll when serve() has something to do.
  int fd() const noexcept { return epoll_.get(); }
  /// When serve() has something to do even if nothing happens.
  std::optional<TimePoint> due() const noexcept;
  /// Serves everyone, without waiting; returns who got in.
  std::vector<AcceptedPeer> serve();
  /// Stops listening, and closes what has not authenticated.
  void close() noexcept;

  /// A peer that sees its connection closed has been counted. From any thread.
  AcceptorCounts counts() const noexcept;
  /// It has run out of descriptors and accepts no connection for a moment.
  bool starved() const noexcept { return accepting_again_.has_value(); }
  /// "rejected 3 unauthenticated connections on 10.0.0.1:29500; the last was 10.0.0.9:4711: a hello of
  /// impossible length"; empty when there were none.
  std::string rejections() const;

 private:
  struct PendingConnection {
    UniqueFd fd;
    Responder responder;
    TimePoint expires;
  };
  /// By number, which grows with time: the oldest first.
  using PendingConnections = std::map<std::uint64_t, PendingConnection>;

  void accept_some();
  bool admit(UniqueFd fd);
  bool evict(Duration least_age);
  void expire();
  void pause_accepting();
  void watch_listener(bool watched);
  bool someone_knocks() const;
  void count(std::uint64_t AcceptorCounts::*field) noexcept;
  void advance(std::uint64_t id, std::vector<AcceptedPeer>& accepted);
  void reject(PendingConnections& all, PendingConnections::iterator one, std::string_view why,
              std::uint64_t AcceptorCounts::*as);

  Listener listener_;
  const MacKey key_;
  const Protection protection_;
  const Admit admit_;
  AcceptorLimits limits_;
  UniqueFd epoll_;
  PendingConnections silent_, talking_;  ///< silent: has not sent a byte
  std::uint64_t next_id_;
  std::optional<TimePoint> accepting_again_;
  mutable AcceptorCounts counts_;  ///< through std::atomic_ref
  std::string last_rejected_;
};

}  // namespace dtrain::net
