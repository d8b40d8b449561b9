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
#include "cluster/rendezvous/session.h"
#include "runtime/base/clock.h"

namespace dtrain::rendezvous {

struct ServerOptions {
  std::optional<Token> token;
  bool insecure = false;
  std::string job;
  int min_nodes = 1, max_nodes = 1;
  int spares = 0;  ///< launchers beside max_nodes that wait for a node to be lost
  int max_restarts = 0;
  Duration join_timeout = std::chrono::seconds(600);  ///< until the first round; then who is missing is named
  Duration last_call = std::chrono::seconds(30);      ///< how long MIN nodes wait for MAX
  Duration lease = std::chrono::seconds(4);           ///< as every member's
  Duration lost_after = std::chrono::seconds(6);      ///< without a heartbeat
  Duration form_within = std::chrono::minutes(2);    ///< a node that takes longer to get ready is left behind
  Duration stop_within = std::chrono::minutes(2);    ///< the same for ending its workers
  Duration settle = std::chrono::milliseconds(50);   ///< to find the earliest failure
  Duration waiting_every = std::chrono::seconds(5);  ///< between two Waiting
  std::int64_t launch_time_ns = 0;
  std::string run_id;
  std::vector<std::string> hosts;  ///< by node_rank, where a batch system tells; to name who is missing
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
