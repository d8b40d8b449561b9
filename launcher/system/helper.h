// Runs a small program of somebody else's and reads what it prints, within a deadline.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/clock.h"

namespace dtrain::launcher {

struct HelperResult {
  int exit_code = -1;  ///< 128 + signal where one killed it; 127 when it could not be started
  bool timed_out = false;
  std::string out;  ///< at most 64 KiB
};

/// `argv[0]` is looked up in PATH. Its stdin is empty, its stderr ours; it dies with this process. Blocks at
/// most until `deadline`; then it gets SIGTERM, and 2 s later SIGKILL. Throws SystemError when no process can
/// be made.
HelperResult run_helper(const std::vector<std::string>& argv, const Deadline& deadline);

}  // namespace dtrain::launcher
