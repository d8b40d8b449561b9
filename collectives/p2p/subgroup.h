// How the ranks of a group agree on who belongs to which part of it, whatever the backend.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "collectives/communicator.h"

namespace dtrain::p2p {

/// The part of a group that this rank belongs to.
struct Subgroup {
  std::vector<int> members;  ///< their ranks in the whole group, by rank in the new one
  std::string name;          ///< the same on all members; no other group of the job has it

  /// This rank's number in the new group; `old_rank` is the one in the whole group.
  int rank_of(int old_rank) const;
};

/// Communicator::split's agreement: ranks with equal `color` form a group, ordered by `key`, then rank.
/// Collective over `whole`, whose name is `name`; `number` counts its splits, the same on all ranks. Throws
/// as Work::wait.
Subgroup agree_on_subgroup(Communicator& whole, std::string_view name, int number, int color, int key,
                           const Deadline& deadline);

}  // namespace dtrain::p2p
