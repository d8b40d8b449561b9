// Finds out which ranks of a group run on one machine: has them share memory, and plans the group's
// collectives by it.
#pragma once

#include <string>

#include "collectives/locality.h"
#include "collectives/p2p/transport.h"

namespace dtrain {

/// Collective over the ranks of `endpoints`, on which no messages are under way yet. Ranks of one machine, in
/// one network and process namespace, pass their messages through memory where the system lets them and all
/// of them want it, up to kMostSharing at a time; to others they go as before. (Where messages cannot be
/// polled, either all ranks of the group share memory or none.) The endpoints' plan is made of the hosts that
/// the ranks form and, where there are several, of what their links are measured to cost. `group` is the
/// group's name, the same on all ranks. Throws PeerError when `deadline` passes, UsageError when ranks ask
/// for different algorithms.
p2p::Endpoints prefer_shared_memory(p2p::Endpoints endpoints, const std::string& group,
                                    const Locality& locality, const Deadline& deadline);

}  // namespace dtrain
