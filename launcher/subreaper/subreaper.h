// The subreaper: a small process between the launcher and its workers that starts them, inherits whatever
// they leave behind, and kills all of it when the launcher is gone. See docs/decisions/002-no-orphans.md.
#pragma once

#include <sys/types.h>

#include <span>
#include <string>
#include <vector>

#include "launcher/subreaper/lease.h"
#include "launcher/subreaper/spawn.h"
#include "runtime/base/fd.h"

namespace dtrain::launcher {

/// One start of all workers of this node.
struct WorkerGroup {
  std::vector<SpawnRequest> workers;
  Inherited inherited;
  std::vector<std::string> scratch_folders;  ///< removed by the subreaper when the launcher is killed
  Lease* lease = nullptr;                    ///< no worker outlives it; nullptr: there are no other nodes
  std::span<char> title;  ///< the process's argv memory, overwritten so that it is not taken for a launcher
};

/// The launcher's end of a subreaper. Reading 0 bytes from `socket` means that subreaper and guard have
/// ended.
struct Subreaper {
  pid_t pid = -1;   ///< of the guard, our child: the subreaper is its child
  UniqueFd socket;  ///< seqpacket: Event comes out, Command goes in (protocol.h); reads do not block
};

/// Forks the guard and, from that, the subreaper, which starts every worker and then reports each one's end.
/// The caller must have all signals it cares about blocked (SIGCHLD among them), and keeps its own copies of
/// the requests' descriptors. Subreaper and guard end by themselves once no descendant is left, or
/// kStuckAfter one that does not end was killed. When the lease is over they kill everything, whatever the
/// launcher does; a lease that is over before has no worker started. Throws SystemError.
Subreaper start_subreaper(const WorkerGroup& group);

}  // namespace dtrain::launcher
