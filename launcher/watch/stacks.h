// A worker's stacks, taken from outside by the best means that this machine has.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "runtime/base/clock.h"

namespace dtrain::launcher {

/// What the threads of `pid` are doing, in at most `max_lines` lines (5 at least): first as the kernel tells
/// it, then their stacks by py-spy for a Python program, else by gdb. Threads that do the same share a line.
/// What a tool cannot do is said, and the next one is tried. A tool stops the process for moments; a tool
/// that does not answer until `deadline` is ended, and the process runs on. One that is stopped already is
/// left alone. Blocks at most 4 s longer than `deadline`.
std::vector<std::string> stacks_of(pid_t pid, const Deadline& deadline, std::size_t max_lines);

}  // namespace dtrain::launcher
