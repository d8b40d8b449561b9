// How parameter servers update: for all workers together, or for each as it comes.
#pragma once

#include <cstdint>
#include <optional>

namespace dtrain {

/// When pushes become updates.
enum class ServerUpdate {
  sync,   ///< once all workers have pushed a key: one update by their average, added up in the workers' order
  async,  ///< at once, each push an update of its own
};

struct ServerRules {
  int workers = 1;  ///< numbered from 0
  ServerUpdate update = ServerUpdate::sync;
  /// async: a worker that has made more updates than this beyond the slowest present one waits with its next
  /// pull (stale synchronous parallel, Ho et al. 2013); unset: no worker waits.
  std::optional<std::int64_t> max_staleness = std::nullopt;
  /// The job ends without this worker (which writes the run's records); -1: it continues with any worker.
  int recorder = -1;
};

}  // namespace dtrain
