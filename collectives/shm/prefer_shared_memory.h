// Finds out whether the ranks of a group can share memory, and has them do so.
#pragma once

#include <string>

#include "collectives/p2p/transport.h"

namespace dtrain {

/// Collective over the ranks of `endpoints`, on which no messages are under way yet. Where all of them run on
/// this machine, in one network and process namespace, and the system lets them share memory, endpoints whose
/// messages go through it; else, or where a rank is not `willing`, `endpoints` as they are. All ranks get the
/// same. `group` is the group's name, the same on all ranks. Throws PeerError when `deadline` passes.
p2p::Endpoints prefer_shared_memory(p2p::Endpoints endpoints, const std::string& group, bool willing,
                                    const Deadline& deadline);

}  // namespace dtrain
