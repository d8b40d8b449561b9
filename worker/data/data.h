// The commands of `dtrain data`, a file each.
#pragma once

#include <string>

#include "worker/commands.h"

namespace dtrain {

ExitCode run_data_stats(const Invocation& invocation);
ExitCode run_data_pack(const Invocation& invocation);
ExitCode run_data_index(const Invocation& invocation);

/// What they share. The text of option `name`; throws UsageError where it was not given.
std::string required(const Options& options, const char* name);
/// --threads, or as many as there are cores.
int threads_of(const Options& options);

}  // namespace dtrain
