// What all launchers of a job must agree on, as names and values to compare when they meet.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "launcher/process/job.h"

namespace dtrain::launcher {

/// Number of nodes, program, its arguments, the built-in program's build, version, restarts, and a hash of
/// arguments and the program's configuration file. The number of workers is not part of it: nodes may
/// differ. Reads the configuration file and the built-in program.
std::vector<std::pair<std::string, std::string>> must_match(const Job& job);

/// A secret that is none, for a job that was told to do without (--insecure): the same on every node, since
/// all know the run's id and start time. Off loopback the workers' store takes no one without.
std::string public_token(const std::string& run_id, std::int64_t launch_time_ns);

}  // namespace dtrain::launcher
