// How a worker finds its peers: its placement from the environment, the store at MASTER_ADDR:MASTER_PORT, the
// communicator.
#pragma once

#include <exception>
#include <memory>
#include <string>

#include "cluster/detect/detect.h"
#include "cluster/store/store_client.h"
#include "cluster/store/store_server.h"
#include "collectives/factory.h"
#include "runtime/base/environment.h"
#include "runtime/base/log.h"

namespace dtrain {

/// Where a launcher, mpirun or srun has placed this process among the workers of its job. rank, world_size
/// and local_rank are always set: 0, 1 and 0 for a process that was started by itself. Throws UsageError
/// naming the variable when the environment contradicts itself.
Placement find_placement(const Environment& environment);

/// The connection to the other workers. Rank 0 also serves the store the others meet in.
class Peers {
 public:
  /// Blocks until every worker has come. `placement` as find_placement gives it. `backend` as
  /// make_communicator; nccl works on `device`, borrowed, as is `spans`, where collectives leave their spans;
  /// null: nowhere. Throws PeerError when somebody does not come within `timeout`, UsageError when there is
  /// no way to meet (no MASTER_ADDR, backend not built).
  Peers(const Placement& placement, Backend backend, const Environment& environment, Duration timeout,
        Log& log, Device* device = nullptr, SpanRecorder* spans = nullptr);
  /// While an exception unwinds, the others are told that this worker ends with an error.
  ~Peers();
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  Communicator& communicator() noexcept { return *communicator_; }
  /// Call when all went well: whoever serves the store waits (a few seconds at most) for the others to leave
  /// first.
  void leave();

 private:
  void meet_in_store(const Placement& placement, const Environment& environment, Duration timeout, Log& log);

  const int exceptions_ = std::uncaught_exceptions();
  std::unique_ptr<StoreServer> server_;
  std::unique_ptr<StoreClient> store_;
  std::unique_ptr<Communicator> communicator_;
};

}  // namespace dtrain
