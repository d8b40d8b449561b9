// What a forked process of the launcher's does to itself before its work: name, signals, descriptors.
#pragma once

#include <sys/types.h>

#include <span>
#include <string_view>
#include <vector>

#include "runtime/base/fd.h"

namespace dtrain::launcher {

/// Closes every descriptor of this process from 3 on that is not in `kept`. Never fails.
void close_all_but(std::vector<int> kept);

/// Replaces the standard streams by /dev/null and closes every other descriptor that is not in `kept`.
void detach_from_all_but(std::vector<int> kept);

/// Calls this process `name` in /proc/…/comm and, over the memory of argv, in its command line.
void take_name(std::span<char> title, std::string_view name);

/// Blocks every signal; those in `watched` can be read from the result. Throws SystemError.
UniqueFd block_signals_but_watch(const std::vector<int>& watched);

/// Lets a child of this process run on when something has stopped it (SIGSTOP), at once if SIGCHLD wakes the
/// caller. Never fails.
void continue_if_stopped(pid_t child);

/// Waits for the end of a child that is about to exit, a second at most: one that is held meanwhile stays a
/// zombie.
void reap_soon(pid_t child);

/// Whether the other end of a socket pair is closed in all processes, as when its process ends.
bool is_closed(int socket);

/// Reads all that waits in a signalfd.
void drain_signals(const UniqueFd& signals);

}  // namespace dtrain::launcher
