// Which processes of a job are workers and which are parameter servers.
#pragma once

#include <cstdint>
#include <optional>

#include "cluster/detect/detect.h"
#include "runtime/base/environment.h"
#include "runtime/base/options.h"

namespace dtrain {

/// This process' part in a job.
struct ServerRole {
  int workers = 1;  ///< ranks 0 to workers - 1
  int servers = 0;
  std::optional<int> server;  ///< the number of this one; unset: it is a worker
  bool beside =
      false;  ///< dtrain-launch has started the servers in addition to the workers; else the last ranks serve
};

/// From --servers (of the options, or, by the launcher, DTRAIN_SERVERS) and where this process was placed.
/// Throws UsageError with the numbers where no worker is left, and where the option says otherwise than the
/// launcher.
ServerRole find_server_role(const Options& options, const Placement& placement,
                            const Environment& environment);

}  // namespace dtrain
