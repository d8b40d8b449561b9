// The mpi backend: rank and size are MPI_COMM_WORLD's.
#include <fmt/format.h>

#include "collectives/backends.h"
#include "collectives/mpi/mpi_check.h"
#include "collectives/mpi/mpi_transport.h"
#include "collectives/p2p/p2p_communicator.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

void check_place(const Bootstrap& bootstrap) {
  int rank = 0, size = 1;
  check(MpiResult{MPI_Comm_rank(MPI_COMM_WORLD, &rank)}, "MPI_Comm_rank");
  check(MpiResult{MPI_Comm_size(MPI_COMM_WORLD, &size)}, "MPI_Comm_size");
  if (rank == bootstrap.rank && size == bootstrap.size) return;
  throw UsageError(
      fmt::format("backend mpi: expected to be rank {} of {}, but MPI started this process as rank {} of {}; "
                  "start the workers "
                  "themselves with mpirun, or use tcp",
                  bootstrap.rank, bootstrap.size, rank, size));
}

}  // namespace

bool mpi_is_built() noexcept { return true; }

std::unique_ptr<Communicator> make_mpi_communicator(const Bootstrap& bootstrap, Log& log) {
  const MpiSite site{std::make_shared<MpiRuntime>(), bootstrap.host, bootstrap.share_memory};
  check_place(bootstrap);
  return p2p::make_p2p_communicator(
      make_mpi_channels(site, MPI_COMM_WORLD, bootstrap.name, Deadline::after(bootstrap.timeout)),
      bootstrap.name, bootstrap.timeout, log, bootstrap.spans);
}

}  // namespace dtrain
