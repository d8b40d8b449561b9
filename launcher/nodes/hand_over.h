// Jobs of many nodes need the rendezvous and with it libcrypto, whose loading would cost every start on one
// node a millisecond: the same launcher exists twice, and the light one becomes the other when it has to.
#pragma once

#include <string>

#include "launcher/output/console.h"
#include "launcher/process/job.h"

namespace dtrain::launcher {

/// In the light launcher: becomes `own_folder`/dtrain-launch-nodes with the same arguments, environment and
/// process id. Throws UsageError when that is not there. In the other: does nothing.
void hand_over_to_nodes(const std::string& own_folder, char** argv);

/// Runs a job of many nodes; for the launcher that can.
int run_many(const Job& job, Console& console);

/// Starts the job that --hosts asks for; for the launcher that can. `line` is what `options` were made of.
/// Returns and throws as run_on_hosts().
int run_hosts(const ParsedCommand& line, const LaunchOptions& options, const Environment& environment,
              const std::string& own_folder, Console& console);

}  // namespace dtrain::launcher
