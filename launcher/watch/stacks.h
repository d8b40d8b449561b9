// A worker's stacks, taken from outside by the best means that this machine has.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "runtime/base/clock.h"

namespace dtrain::launcher {

/// The stacks of all threads of `pid`, in lines, the first of which says what took them: py-spy for a Python
/// program, else gdb, else what the kernel tells of each thread. What a tool cannot do is said, and the next
/// one is tried. Stops the process for moments; blocks at most until `deadline`.
std::vector<std::string> stacks_of(pid_t pid, const Deadline& deadline);

}  // namespace dtrain::launcher
