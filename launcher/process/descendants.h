// Finds and ends every process below this one, whatever process group or session it moved to. Works because
// this process is a child subreaper: what a worker leaves behind becomes our child, never init's.
#pragma once

#include <sys/types.h>

#include <vector>

#include "runtime/base/clock.h"

namespace dtrain::launcher {

/// Makes this process the one that inherits orphaned descendants. Throws SystemError.
void become_subreaper();

/// All processes below this one, parents before children, from one pass over /proc; empty where /proc is not
/// mounted. Includes those that have ended and wait to be reaped.
std::vector<pid_t> descendants();

/// Sends `signal` to every descendant; returns how many there were.
int signal_descendants(int signal);

/// SIGKILLs and reaps until no child is left; false when some were still there at the deadline (a process
/// stuck in the kernel). Reaps every child of the process, so only for callers that own none they want to
/// know about. A child called `spared` is left alone.
bool end_descendants(const Deadline& deadline, pid_t spared = -1);

}  // namespace dtrain::launcher
