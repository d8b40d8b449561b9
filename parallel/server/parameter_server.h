// A parameter server: holds keys and updates them by what workers push. It is no rank of any group: workers
// come, go, and come back, each over a connection of its own on which both sides have proved that they belong
// to the job.
//
//     ParameterServer server({.workers = 4, .update = ServerUpdate::async, .max_staleness = 4},
//                            make_updater(sgd), options);
//     publish(server.address());     // workers connect with it (KeyValueStore)
//     server.run();               // until all workers have gone
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "cluster/net/protection.h"
#include "cluster/net/token.h"
#include "parallel/server/delays.h"
#include "parallel/server/server_rules.h"
#include "parallel/server/updater.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"

namespace dtrain {

/// Where a server stands.
struct ParameterServerOptions {
  int number = 0;                   ///< of this server among those of the job, from 0
  std::string host = "127.0.0.1";   ///< the address to listen on
  std::string name = {};            ///< of this machine, as errors show it
  std::optional<Token> token = {};  ///< the job's secret; without one, only loopback addresses
  Protection protection = Protection::authenticate;  ///< of messages; the same on all processes
  Log* log = nullptr;                                ///< borrowed; null: nothing is logged
};

class ParameterServer {
 public:
  /// Listens at once, on a free port. `updater` is used by run(). Throws UsageError for rules that make no
  /// sense and where other machines can reach the port and there is no token, SystemError.
  ParameterServer(const ServerRules& rules, std::unique_ptr<Updater> updater,
                  const ParameterServerOptions& options);
  ~ParameterServer();
  ParameterServer(const ParameterServer&) = delete;
  ParameterServer& operator=(const ParameterServer&) = delete;

  /// What a worker needs to know to connect, beside the token: one short text, no secret where there is a
  /// token.
  const std::string& address() const noexcept;

  /// Serves until all workers that came have gone, or stop(), or, while none is here, `given_up` (may be
  /// null) says so. Throws PeerError when nobody comes within `patience`, and, once all have gone, where none
  /// of them disconnected, or the work had ended before.
  void run(Duration patience, const std::function<bool()>& given_up = {});
  /// From any thread: run() returns soon.
  void stop() noexcept;

  /// After run().
  const UpdateDelays& delays() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dtrain
