// Where a Slurm node can be reached when its name means nothing to the name service: Slurm itself knows.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "cluster/detect/detect.h"
#include "runtime/base/clock.h"

namespace dtrain {

/// NodeAddr from what `scontrol show node NAME --oneliner` prints; nothing when it is not there or no more
/// than the name itself.
std::optional<std::string> parse_node_address(std::string_view text);

/// Asks `scontrol` (from PATH) for the address of `node`. Nothing when there is no scontrol, it knows no such
/// node, or it has not answered when `deadline` passes; it is killed then. Throws SystemError when the system
/// is out of descriptors or processes.
std::optional<std::string> slurm_node_address(const std::string& node, const Deadline& deadline);

/// The placement's master_addr as it can be used here: unchanged when its name resolves to more than this
/// machine's loopback (or is absent), else, under Slurm, the node's NodeAddr with a note in `explanations`.
/// Only a name that does not costs more than a lookup. Waits at most `patience` for the name service and as
/// long again for Slurm.
void use_reachable_master(Placement& placement, Duration patience);

}  // namespace dtrain
