// What this node brings to the others, and what a job is held to on the node that hosts the rendezvous.
#pragma once

#include "launcher/nodes/node_agent.h"
#include "launcher/process/job.h"

namespace dtrain::launcher {

/// `hosts` is not set. Throws UsageError where the number of workers cannot be told.
NodeAgentSettings node_agent_settings(const Job& job);

}  // namespace dtrain::launcher
