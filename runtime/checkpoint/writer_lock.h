// One writer a folder, by flock(2) on a file in it. Not installed.
#pragma once

#include <filesystem>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/log.h"

namespace dtrain {

/// Takes the lock `path`, which is made when it is missing, and signs it with host and process. While
/// somebody else holds it, waits until `deadline`, and after `say_after` tells the log for whom. The lock
/// ends with the result or with the process. Where the file system has no locks, says so in the log and goes
/// on without. Throws SystemError: EBUSY with the holder's name at the deadline, or what opening the file
/// failed with.
UniqueFd take_writer_lock(const std::filesystem::path& path, const Deadline& deadline, Duration say_after,
                          Log& log);

}  // namespace dtrain
