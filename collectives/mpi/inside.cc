// Inside the MPI module: the messages of the mpi backend, whose rank and size are MPI_COMM_WORLD's.
#include <fmt/format.h>

#include "collectives/mpi/mpi_check.h"
#include "collectives/mpi/mpi_transport.h"
#include "collectives/mpi_module.h"
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

p2p::Endpoints make_endpoints(const Bootstrap& bootstrap, PreferMemory prefer_memory) {
  const MpiContext shared{std::make_shared<MpiRuntime>(), bootstrap.host, bootstrap.locality, prefer_memory};
  check_place(bootstrap);
  return make_mpi_endpoints(shared, MPI_COMM_WORLD, bootstrap.name, Deadline::after(bootstrap.timeout));
}

}  // namespace
}  // namespace dtrain

extern "C" __attribute__((visibility("default"))) const dtrain::MpiEndpointsPlugin* dtrain_mpi_endpoints() {
  static constexpr dtrain::MpiEndpointsPlugin kPart{dtrain::make_endpoints};
  return &kPart;
}
