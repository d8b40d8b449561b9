// What NCCL's own monitor says: its RAS subsystem (NCCL 2.24 and later), which answers on a port of each
// node.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/clock.h"

namespace dtrain::launcher {

/// Where it answers unless NCCL_RAS_ADDR says otherwise.
inline constexpr const char* kNcclMonitor = "localhost:28028";

/// The state of all communicators, in lines; empty if nothing answers at `address`, "host:port". Blocks at
/// most until `deadline`.
std::vector<std::string> nccl_status(const std::string& address, const Deadline& deadline);

}  // namespace dtrain::launcher
