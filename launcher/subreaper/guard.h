// The guard: the smallest process of all, between the launcher and the keeper. It inherits what the keeper
// leaves when that is killed, and ends it. See docs/decisions/002-no-orphans.md.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "launcher/subreaper/lease.h"
#include "runtime/base/clock.h"
#include "runtime/base/fd.h"

namespace dtrain::launcher {

/// Neither keeper nor guard waits longer for a process that does not end: one stuck in the kernel, or
/// another user's. Every other has ended long before.
inline constexpr Duration kStuckAfter = std::chrono::seconds(10);

/// What a keeper exits with that has ended everything but what is stuck, and has said so.
inline constexpr int kKeeperLeftSome = 3;

struct GuardSettings {
  int socket = -1;  ///< to the launcher, shared with the keeper; its end tells that both have ended
  std::vector<std::string> scratch_folders;  ///< removed when launcher and keeper are both gone
  std::span<char> title;                     ///< the process's argv memory
  Lease* lease = nullptr;  ///< told when nothing is left below; nullptr: there are no other nodes
};

/// To be called in a fork of the launcher, which becomes the guard: forks the keeper, in which `keeper` runs
/// (its result is the exit code), and ends after it, when nothing is left below. A keeper that is killed, or
/// that stands still when the launcher has gone or the lease is over, is taken the place of: all below is
/// killed.
[[noreturn]] void run_guard(const GuardSettings& settings, const std::function<int()>& keeper);

}  // namespace dtrain::launcher
