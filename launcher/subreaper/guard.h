// The guard: the smallest process of all, between the launcher and the subreaper. It inherits what the
// subreaper leaves when that is killed, and ends it. See docs/decisions/002-no-orphans.md.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "launcher/subreaper/lease.h"
#include "runtime/base/clock.h"
#include "runtime/base/fd.h"

namespace dtrain::launcher {

/// Neither subreaper nor guard waits longer for a process that does not end: one stuck in the kernel, or
/// another user's. Every other has ended long before.
inline constexpr Duration kStuckAfter = std::chrono::seconds(10);

/// What a subreaper exits with that has ended everything but what is stuck, and has said so.
inline constexpr int kSubreaperLeftSome = 3;

struct GuardSettings {
  int socket = -1;  ///< to the launcher, shared with the subreaper; its end tells that both have ended
  std::vector<std::string> scratch_folders;  ///< removed when launcher and subreaper are both gone
  std::span<char> title;                     ///< the process's argv memory
  Lease* lease = nullptr;  ///< told when nothing is left below; nullptr: there are no other nodes
};

/// To be called in a fork of the launcher, which becomes the guard: forks the subreaper, in which `subreaper`
/// runs (its result is the exit code), and ends after it, when nothing is left below. A subreaper that is
/// killed, or that stands still when the launcher has gone or the lease is over, is taken the place of: all
/// below is killed.
[[noreturn]] void run_guard(const GuardSettings& settings, const std::function<int()>& subreaper);

}  // namespace dtrain::launcher
