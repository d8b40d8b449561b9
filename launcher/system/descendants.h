// Finds and ends every process below this one, whatever process group or session it moved to. Works because
// this process is a child subreaper: what a worker leaves behind becomes our child, never init's.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/clock.h"

namespace dtrain::launcher {

/// One process as /proc shows it. Pid and start together are never used twice while the machine is up.
struct Process {
  pid_t pid = 0;
  pid_t parent = 0;
  char state = 0;             ///< as ps shows it: R, S, D (in the kernel, deaf to signals), T, Z, …
  std::uint64_t started = 0;  ///< clock ticks after boot
  std::string name;
};

/// Makes this process the one that inherits orphaned descendants. Throws SystemError.
void become_subreaper();

/// What /proc knows about `pid`; nothing when there is no such process.
std::optional<Process> find_process(pid_t pid);

/// As process 1 of a container or a namespace this process inherits every orphan there: reaps those that have
/// ended, and its own children. Otherwise nothing.
void reap_as_process_one();

/// All processes below this one, parents before children, from one pass over /proc; empty where /proc is not
/// mounted. Includes those that have ended and wait to be reaped.
std::vector<Process> descendants();

/// Whether a child of `parent`, which need not be below this process, has ended and waits to be reaped. One
/// pass over /proc.
bool has_ended_child(pid_t parent);

/// Sends `signal` to exactly that process, never to one that got its number since it was seen. False when it
/// has ended or may not be signalled (errno tells).
bool signal_process(const Process& process, int signal);

/// Sends `signal` to every descendant; returns how many there were.
int signal_descendants(int signal);

/// SIGKILLs and reaps until no child is left or the deadline passes; returns who is left then: stuck in the
/// kernel, or another user's. Looks at /proc again after 5 ms, then more and more rarely, at once when a
/// child ends. Reaps every child of the process, so only for one that wants to know about none. SIGCHLD must
/// be blocked.
std::vector<Process> end_descendants(const Deadline& deadline);

/// "process 42 (sleep, state S, of user 0)", for people.
std::string text_of(const Process& process);

}  // namespace dtrain::launcher
