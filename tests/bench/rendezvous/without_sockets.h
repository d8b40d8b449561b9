// The leader's and the launchers' own work, for more launchers than a machine may have connections: sessions,
// store and leader in one process, whose messages are encoded and decoded but neither sent nor authenticated.
#pragma once

#include <cstdint>
#include <string>

namespace dtrain::bench {

struct WorkResult {
  double joined_s = 0;   ///< from the first launcher's join until the last has heard the start of round 0
  double failure_s = 0;  ///< from one launcher's report until the last has heard the stop
  double mib = 0;        ///< the largest size of the process: leader, store and all launchers' sessions
  std::string trouble;   ///< empty when all went well
};

/// All launchers come one right after the other. In a process of its own, since the largest size is the
/// process's.
WorkResult measure_without_sockets(int launchers);

}  // namespace dtrain::bench
