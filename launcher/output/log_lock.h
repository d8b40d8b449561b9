// One job at a time writes to a log file: lines of two would be mixed without a mark.
#pragma once

#include <string>

#include "runtime/base/fd.h"

namespace dtrain::launcher {

/// Locks the log file at `path`, which must exist, until the descriptor and its copies in forked processes
/// are closed. No lock, and no descriptor, for what is no regular file, and where the file system has none.
/// Waits up to two seconds for the launcher's own former start to let go. Throws UsageError that names the
/// process which writes there.
UniqueFd lock_log_file(const std::string& path);

}  // namespace dtrain::launcher
