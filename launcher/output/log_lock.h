// One job at a time writes to a log file: lines of two would be mixed without a mark.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/base/fd.h"

namespace dtrain::launcher {

/// Locks the log file at `path`, which must exist, until the descriptor and its copies in forked processes
/// are closed. No lock, and no descriptor, for what is no regular file, and where the file system has none.
/// Waits up to two seconds for the launcher's own former start to let go. Throws UsageError that names the
/// process which writes there.
UniqueFd lock_log_file(const std::string& path);

/// Whether a locked file holds something, as of an earlier job that had the same folder.
bool is_continued(const UniqueFd& locked);

/// What parts the jobs in such a file: "dtrain-launch: job ID, started 2026-01-02T03:04:05Z", in a line of
/// its own.
std::string mark_of_job(const std::string& id, std::int64_t started_ns);

}  // namespace dtrain::launcher
