// What /proc says about processes, in the numbers of this process's own PID namespace, also where /proc shows
// those of an outer one (`unshare --pid` without --mount-proc): a number from there would be a stranger's
// here.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dtrain::launcher {

/// One process as /proc shows it. Pid and start together are never used twice while the machine is up.
struct Process {
  pid_t pid = 0;
  pid_t parent = 0;  ///< 0 when it is outside of our PID namespace
  pid_t group = 0;   ///< process group
  pid_t session = 0;
  pid_t shown_as = 0;  ///< its folder below /proc: `pid`, but in an outer PID namespace's numbers there
  char state = 0;      ///< as ps shows it: R, S, D (in the kernel, deaf to signals), T, Z, …
  std::uint64_t started = 0;  ///< clock ticks after boot
  std::string name;
};

/// All processes of this PID namespace that /proc shows, from one pass over it; empty where /proc is not
/// mounted, or is that of a namespace in which this process is not.
std::vector<Process> all_processes();

/// What /proc knows about `pid`; nothing when there is no such process.
std::optional<Process> find_process(pid_t pid);

/// Its folder: "/proc/42"; in an outer PID namespace's numbers where /proc has those. Empty when there is no
/// such process.
std::string folder_of(pid_t pid);

/// The number here of the process or thread whose folder below /proc that is; 0 when it has none here.
pid_t number_of(const std::string& folder);

/// What is there now of a process that was seen before; nothing when it has ended.
std::optional<Process> look_again(const Process& process);

/// Whether a child of `parent`, which need not be below this process, has ended and waits to be reaped. One
/// pass over /proc.
bool has_ended_child(pid_t parent);

/// "process 42 (sleep, state S, of user 0)", for people.
std::string text_of(const Process& process);

/// How a process takes a signal.
enum class Manner {
  dies,     ///< by the default action (which for a few signals does nothing)
  ignores,  ///< does not notice
  handles,  ///< by a handler of its own, or reads it from where it is blocked
  waits,    ///< a shell with a trap: which it comes to when the command that it waits for has ended
};

/// As its first thread does; `dies` where that cannot be read.
Manner manner_of(const Process& process, int signal);

/// What makes /proc of no use here, in words; empty where it is of use.
std::optional<std::string> proc_trouble();

}  // namespace dtrain::launcher
