// The collectives' part of the MPI module (cluster/mpi/module.h), as the program sees it: the messages of a
// group. What makes a communicator of them is the program's own.
#pragma once

#include <string>

#include "collectives/factory.h"
#include "collectives/p2p/transport.h"

namespace dtrain {

/// prefer_shared_memory() (shm/prefer_shared_memory.h), which the module asks for each group that it makes.
using PreferMemory = p2p::Endpoints (*)(p2p::Endpoints endpoints, const std::string& group,
                                        const Locality& locality, const Deadline& deadline);

/// From the module's function `dtrain_mpi_endpoints`.
struct MpiEndpointsPlugin {
  /// Collective over MPI_COMM_WORLD. `bootstrap` is complete. Throws as make_communicator() for backend mpi.
  p2p::Endpoints (*make)(const Bootstrap& bootstrap, PreferMemory prefer_memory);
};
using MpiEndpointsPluginFunction = const MpiEndpointsPlugin* (*)();

}  // namespace dtrain
