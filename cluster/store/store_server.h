// The rendezvous store's server: one thread, one epoll loop. Strangers cost it a bounded number of bytes and
// seconds and never reach the store's logic; what authenticated clients may keep is bounded too.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "cluster/net/endpoint.h"
#include "cluster/net/token.h"
#include "cluster/store/store_limits.h"
#include "cluster/store/store_observer.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"

namespace dtrain {

struct StoreServerOptions {
  std::optional<Token> token;  ///< none is allowed on loopback only
  bool insecure = false;       ///< allow none elsewhere too
  std::string job;             ///< clients of another job are refused; at most 128 bytes
  std::chrono::milliseconds handshake_timeout{5000};
  std::size_t max_strangers = 1024;          ///< connections not yet authenticated (at most a quarter of the
                                             ///< descriptors); the oldest goes when one more comes
  std::size_t max_clients = 1U << 17;        ///< authenticated connections
  std::size_t max_unsent_bytes = 64U << 20;  ///< kept for a client that does not read, before it is dropped
  StoreTableLimits table;
  StoreObserver* observer = nullptr;  ///< borrowed, outlives the server
  Log* log = nullptr;                 ///< borrowed, outlives the server; null: nothing is logged
};

/// Counts since the start.
struct StoreServerStats {
  std::uint64_t accepted = 0;
  std::uint64_t authenticated = 0;
  std::uint64_t refused = 0;    ///< sent something wrong before or after authentication
  std::uint64_t timed_out = 0;  ///< did not authenticate in time
  std::uint64_t evicted = 0;    ///< strangers that made room for newer ones
  std::uint64_t clients = 0;    ///< authenticated connections now
};

class StoreServer {
 public:
  /// Serves on `listener` (listen_on, or adopt_listener for an inherited descriptor) from its own thread at
  /// once. Throws UsageError when the address is not loopback and there is neither a token nor `insecure`,
  /// SystemError when the thread's descriptors cannot be made.
  StoreServer(Listener listener, StoreServerOptions options);
  /// As stop().
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  /// Where it listens, port filled in.
  const SocketAddress& address() const noexcept;
  std::uint16_t port() const noexcept { return address().port(); }

  /// Blocks until at most `count` authenticated clients are connected; false when `deadline` passed first.
  /// A store's host waits for the others to leave before it stops: they would miss the last answers.
  bool wait_until_clients(std::size_t count, const Deadline& deadline) const;

  StoreServerStats stats() const;

  /// Closes every connection and joins the thread, within milliseconds; clients see the loss at once.
  /// Idempotent.
  void stop() noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dtrain
