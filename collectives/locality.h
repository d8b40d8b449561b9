// What a group makes of where its ranks run.
#pragma once

#include <string>

#include "collectives/all_reduce_algorithm.h"

namespace dtrain {

/// What a rank wants of its group.
struct Locality {
  /// Ranks of one machine pass their messages through memory, where the system allows it and all of those
  /// ranks want it.
  bool share_memory = true;
  /// Of all_reduce; the same on all ranks. `automatic` and `hierarchical` also take the other collectives of
  /// a group on several hosts by two levels.
  AllReduceAlgorithm all_reduce = AllReduceAlgorithm::automatic;
  /// Ranks with the same identity share a host, and others do not: where the network of a cluster has a
  /// structure of its own, and for tests. Empty: told from the machine and its namespaces.
  std::string host_identity = {};
};

}  // namespace dtrain
