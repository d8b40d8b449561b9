// A job on many nodes, as one of their launchers lives through it: meets the others, then round after round
// until the job is over.
#pragma once

#include "launcher/output/console.h"
#include "launcher/process/job.h"

namespace dtrain::launcher {

/// As run_job, for a place with many(). Every launcher of the job prints the same cause and returns the same
/// code; 4 when this one lost the others, 2 when they refused it.
int run_on_nodes(const Job& job, Console& console);

}  // namespace dtrain::launcher
