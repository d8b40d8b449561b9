// A job on the hosts of --hosts: starts a launcher on each by ssh, merges what they print, and ends all of
// them when this one ends. See docs/decisions/081-hosts-by-ssh.md.
#pragma once

#include <optional>
#include <string>

#include "cluster/net/token.h"
#include "launcher/hosts/hosts_plan.h"
#include "launcher/output/console.h"

namespace dtrain::launcher {

/// Connects to all hosts at once, then starts the launchers of those that have answered, in the order of the
/// list. A host that does not answer is named and left out where the others are enough (--spares, MIN of
/// --nnodes); otherwise the job ends. A connection that breaks costs the job that node. Returns the job's
/// exit code, as the launchers have it; 4 when too few hosts could be reached. `token`: the job's secret, or
/// a new one is made. `own_folder` holds dtrain-launch, at the same path on every host. To be called from the
/// main thread of a process with no other threads and no children; blocks the signals it handles. Throws
/// UsageError and SystemError before anything was started.
int run_on_hosts(const HostsPlan& plan, const LaunchOptions& options, const std::optional<Token>& token,
                 const Environment& environment, const std::string& own_folder, Console& console);

}  // namespace dtrain::launcher
