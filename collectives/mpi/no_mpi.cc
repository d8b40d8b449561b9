// Stands in for the mpi backend in builds without MPI.
#include "collectives/backends.h"
#include "runtime/base/error.h"

namespace dtrain {

bool mpi_is_built() noexcept { return false; }

std::unique_ptr<Communicator> make_mpi_communicator(const Bootstrap&, Log&) {
  throw UsageError(
      "backend mpi: not in this build; install libopenmpi-dev and openmpi-bin and configure with "
      "-DDTRAIN_WITH_MPI=ON");
}

}  // namespace dtrain
