// Finds and ends every process below this one, whatever process group or session it moved to. Works because
// this process is a child subreaper: what a worker leaves behind becomes our child, never init's.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "launcher/system/processes.h"
#include "runtime/base/clock.h"

namespace dtrain::launcher {

/// Makes this process the one that inherits orphaned descendants. Throws SystemError.
void become_subreaper();

/// All processes below this one, parents before children, from one pass over /proc, or none without a child;
/// empty where /proc is of no use. Includes those that have ended and wait to be reaped.
std::vector<Process> descendants();

/// How many children this process has, ended ones that wait to be reaped among them. Costs a read where
/// descendants() takes a pass over /proc. Exact for a process of one thread that nobody else reaps for;
/// nothing where the kernel keeps no such list.
std::optional<std::size_t> child_count();

/// Sends `signal` to exactly that process, never to one that got its number since it was seen. Where the
/// kernel or a seccomp filter refuses descriptors of processes, by its number, right after a look at it.
/// False when it has ended or may not be signalled (errno tells).
bool signal_process(const Process& process, int signal);

/// Sends `signal` to a process group if a child of this process is in it, so that it cannot be a stranger's
/// that has got its number. Needs no /proc.
void signal_group(pid_t group, int signal);

/// Sends `signal` to every descendant; returns how many there were.
int signal_descendants(int signal);

/// SIGKILLs and reaps until no child is left or the deadline passes; returns who is left then: stuck in the
/// kernel, or another user's; one without a pid stands for those that /proc does not show. Looks at /proc
/// again after 5 ms, then more and more rarely, at once when a child ends. Reaps every child of the process,
/// so only for one that wants to know about none. SIGCHLD must be blocked.
std::vector<Process> end_descendants(const Deadline& deadline);

/// What keeps this machine from ending processes as reliably as others, for people.
std::vector<std::string> trouble_with_ending();

}  // namespace dtrain::launcher
