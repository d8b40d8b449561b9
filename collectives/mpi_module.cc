#include "collectives/mpi_module.h"

#include "cluster/mpi/module.h"
#include "collectives/backends.h"
#include "collectives/p2p/p2p_communicator.h"
#include "collectives/shm/prefer_shared_memory.h"

namespace dtrain {

std::unique_ptr<Communicator> make_mpi_communicator(const Bootstrap& bootstrap, Log& log) {
  const MpiEndpointsPlugin& part =
      *reinterpret_cast<MpiEndpointsPluginFunction>(mpi::module_symbol("dtrain_mpi_endpoints"))();
  return p2p::make_p2p_communicator(part.make(bootstrap, prefer_shared_memory), bootstrap.name,
                                    bootstrap.timeout, log, bootstrap.spans);
}

}  // namespace dtrain
