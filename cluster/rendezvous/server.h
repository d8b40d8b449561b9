// The one that knows who has come: hosts the launchers' store and feeds the membership state machine with
// what arrives and with the time. Runs on node 0.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cluster/net/endpoint.h"
#include "cluster/net/token.h"
#include "cluster/quorum/leadership.h"
#include "cluster/rendezvous/membership.h"
#include "runtime/base/clock.h"

namespace dtrain::rendezvous {

struct ServerOptions {
  std::optional<Token> token;
  bool insecure = false;
  std::string job;
  JobRules rules;  ///< but for `job` and `listening`, which are filled in
  /// Where another launcher may lead when this one is lost (jobs of fixed size that may restart): this
  /// launcher's; borrowed.
  Leadership* leadership = nullptr;
};

/// A job that this launcher has been elected to lead.
struct Succession {
  Election election;
  Snapshot known;
  int place = 0;  ///< this launcher's
};

class RendezvousServer {
 public:
  /// Serves on `listener` from its own thread: leads at once, or stands by until lead() is called. Throws as
  /// StoreServer.
  RendezvousServer(Listener listener, const ServerOptions& options, bool stands_by = false);
  ~RendezvousServer();
  RendezvousServer(const RendezvousServer&) = delete;
  RendezvousServer& operator=(const RendezvousServer&) = delete;

  const SocketAddress& address() const noexcept;
  /// Where the other launchers find it.
  Endpoint endpoint() const;
  /// Leads the job as the leader's successor. May be called from any thread.
  void lead(Succession succession);
  /// Whether this is where the job is led, until it is over. May be called from any thread.
  bool leads() const;
  /// Blocks until the job is over, every member has heard so and gone, or `deadline` passes; true when over.
  /// At once where another one leads.
  bool wait_until_over(const Deadline& deadline) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dtrain::rendezvous
