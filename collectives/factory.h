// Makes a communicator by the name of its backend, so that nothing above knows which ones this build has.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/net/protection.h"
#include "cluster/net/token.h"
#include "cluster/store/store.h"
#include "collectives/communicator.h"
#include "collectives/locality.h"
#include "collectives/thread_ranks.h"
#include "runtime/base/log.h"
#include "runtime/base/spans.h"

namespace dtrain {

/// Who this process is in its group and where to meet the others.
struct Bootstrap {
  int rank = 0;
  int size = 1;
  std::string host;        ///< this machine's name as errors show it; empty: gethostname()
  Store* store = nullptr;  ///< tcp, gloo meet here; borrowed, must outlive the communicator and its splits
  std::optional<Token> token = std::nullopt;  ///< tcp: the job's secret, the same on all ranks; without one
                                              ///< only loopback addresses may be listened on
  Protection protection = Protection::authenticate;  ///< tcp: of messages that leave a machine; the same on
                                                     ///< all ranks
  std::string interface;  ///< network interface for tcp, gloo ("eth0"); empty: by `address`
  std::string address;    ///< this machine's own address or name for tcp, gloo to listen on; empty: the one
                          ///< that leads to `master`, else 127.0.0.1
  std::string master;     ///< the store's host: decides which of this machine's addresses the peers can reach
  Duration timeout = std::chrono::minutes(5);  ///< bounds the set-up and each single call
  Device* device = nullptr;  ///< nccl: this worker's GPU; borrowed, must outlive the communicator
  SpanRecorder* spans =
      nullptr;  ///< tcp, gloo, mpi: hears when each call runs on this rank; borrowed, must outlive it
  Locality locality = {};  ///< tcp, gloo, mpi, threads: what is made of ranks that share a host
  /// Threads: the same for all ranks (thread_ranks.h).
  std::shared_ptr<ThreadRendezvous> rendezvous = nullptr;
  std::string name = "world";  ///< same on all ranks; groups of one store are kept apart by it
};

/// What carries a group's messages; `automatic` leaves the choice to make_communicator.
enum class Backend { automatic, nccl, tcp, gloo, mpi, threads, self };

/// "auto" for automatic, else the name above.
std::string_view name_of(Backend backend) noexcept;

/// The backend of that name. Throws UsageError listing the names for any other text.
Backend backend_named(std::string_view name);

/// Collective; returns once all ranks are connected. `automatic` takes self for a single rank, nccl when the
/// device is a GPU, threads where there is a rendezvous, mpi when mpirun (or srun with PMI) started this very
/// process as an MPI rank and there is no store, else tcp. mpi takes rank and size from MPI_COMM_WORLD and
/// refuses a Bootstrap that says otherwise; it initialises MPI (MPI_THREAD_MULTIPLE) unless the program has,
/// and finalises it with the last communicator if it did. `log` must outlive the communicator. Throws
/// UsageError for a backend that is not in this build and for a Bootstrap that cannot work, PeerError when
/// the others do not come within the timeout.
std::unique_ptr<Communicator> make_communicator(Backend backend, const Bootstrap& bootstrap, Log& log);

/// What can be had here, `self` included, best first. Loads the MPI module to see whether it can be.
std::vector<std::string> built_backends();

}  // namespace dtrain
