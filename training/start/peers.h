// How a worker finds its peers: its placement from the environment, the store at MASTER_ADDR:MASTER_PORT, the
// communicator.
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "cluster/detect/detect.h"
#include "cluster/store/store_client.h"
#include "cluster/store/store_server.h"
#include "collectives/closable_communicator.h"
#include "collectives/factory.h"
#include "parallel/rpc/rpc.h"
#include "parallel/server/key_value_store.h"
#include "parallel/server/parameter_server.h"
#include "runtime/base/environment.h"
#include "runtime/base/log.h"
#include "training/start/server_role.h"

namespace dtrain {

/// Where a launcher, mpirun or srun has placed this process among the workers of its job. rank, world_size
/// and local_rank are always set: 0, 1 and 0 for a process that was started by itself. Throws UsageError
/// naming the variable when the environment contradicts itself.
Placement find_placement(const Environment& environment);

/// What workers and servers of a job meet in: the store that rank 0 serves, or, where mpirun has started all
/// of them, the group of all processes.
class WorkerRendezvous {
 public:
  /// `placement`, `backend`: as Peers takes them; `role` says which of the processes are workers. Blocks
  /// until the store answers, or all processes have come.
  WorkerRendezvous(const Placement& placement, Backend backend, const Environment& environment,
                   Duration timeout, Log& log, const ServerRole& role);

  /// Null if it is not needed.
  Store* store() const noexcept { return store_.get(); }
  const std::string& master() const noexcept { return master_; }
  /// The job's secret; on loopback, where none was given, this user's own.
  const std::optional<Token>& token() const noexcept { return token_; }
  /// The group of this process' kind, workers or servers, where mpirun has started both; else null.
  std::unique_ptr<Communicator> take_group(const Deadline& deadline);
  /// A server leaves its address (ParameterServer::address) for the workers.
  void publish(const std::string& address, const Deadline& deadline);
  /// The addresses of all servers, in their order. Waits for them.
  std::vector<std::string> addresses(const Deadline& deadline);
  /// Where this process listens so that all others can reach it.
  std::string own_address(const Environment& environment, const Deadline& deadline) const;
  /// Takes leave; rank 0 waits for a few seconds until all others have.
  void leave();

 private:
  void meet_in_store(const Placement& placement, const Environment& environment, const Deadline& deadline,
                     Log& log);
  std::vector<std::string> gather_addresses(const std::string& own, const Deadline& deadline);

  ServerRole role_;
  std::string master_;
  std::optional<Token> token_;
  std::unique_ptr<StoreServer> server_;
  std::unique_ptr<StoreClient> store_;
  std::unique_ptr<Communicator> all_;  ///< workers and servers under mpirun
};

/// The connection to the other workers, and to servers where there are some. Rank 0 also serves the store the
/// others meet in.
class Peers {
 public:
  /// Blocks until every worker has come. `placement` as find_placement gives it. `backend` as
  /// make_communicator; nccl works on `device`, borrowed, as is `spans`, where collectives leave their spans;
  /// null: nowhere. Throws PeerError when somebody does not come within `timeout`, UsageError when there is
  /// no way to meet (no MASTER_ADDR, backend not built).
  /// Beside servers `role` says which processes are workers, and `update` how servers update: asynchronous
  /// ones are all that workers have in common, and communicator() hands on what rank 0 says at the start.
  /// `all_reduce`: the same on all workers; the backend's own where that is nccl.
  Peers(const Placement& placement, Backend backend, const Environment& environment, Duration timeout,
        Log& log, Device* device = nullptr, SpanRecorder* spans = nullptr, const ServerRole& role = {},
        ServerUpdate update = ServerUpdate::sync,
        AllReduceAlgorithm all_reduce = AllReduceAlgorithm::automatic);
  /// While an exception unwinds, the others are told that this worker ends with an error.
  ~Peers();
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  /// Until leave(); afterwards it only knows who it was (ClosableCommunicator).
  Communicator& communicator() noexcept { return *communicator_; }
  /// Where further groups of these workers can meet, until leave(); null if they met without one.
  Store* store() noexcept { return rendezvous_.store(); }
  /// Null without servers.
  KeyValueStore* servers() noexcept { return servers_.get(); }
  /// How this worker takes part in remote calls: where it listens so that all others reach it, and the job's
  /// secret. `environment`: as in the constructor.
  RpcOptions rpc_options(const Environment& environment, const Deadline& deadline) const;
  /// Call when all went well: the rank that serves the store waits (a few seconds at most) for the others to
  /// leave first.
  void leave();

 private:
  const int exceptions_ = std::uncaught_exceptions();
  WorkerRendezvous rendezvous_;
  std::unique_ptr<KeyValueStore> servers_;
  std::unique_ptr<ClosableCommunicator> communicator_;
};

/// Protection of messages between machines, by DTRAIN_TCP_PROTECTION.
Protection find_protection(const Environment& environment);

}  // namespace dtrain
