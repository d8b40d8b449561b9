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
#include "runtime/base/clock.h"

namespace dtrain::rendezvous {

struct CoordinatorOptions {
  std::optional<Token> token;
  bool insecure = false;
  std::string job;
  int min_nodes = 1, max_nodes = 1;
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
};

class Coordinator {
 public:
  /// Serves on `listener` from its own thread. Throws as StoreServer.
  Coordinator(Listener listener, const CoordinatorOptions& options);
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  const SocketAddress& address() const noexcept;
  /// Blocks until the job is over and every member has gone, or `deadline` passes; true when over.
  bool wait_until_over(const Deadline& deadline) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dtrain::rendezvous
