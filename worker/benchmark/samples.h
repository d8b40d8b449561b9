// Repeated measurements of times, and their statistics.
#pragma once

#include <utility>
#include <vector>

#include "collectives/communicator.h"

namespace dtrain {

/// The value that `share` of the values, in [0, 1], lie below: the nearest above, 0 of none.
double quantile(std::vector<double> values, double share);
inline double median(std::vector<double> values) { return quantile(std::move(values), 0.5); }
/// 0 of none.
double least(const std::vector<double>& values);

/// Collective: each sample becomes that of the rank where it was largest, since a step is over when the last
/// rank has done it. Every rank passes as many. Throws PeerError.
void take_slowest_rank(Communicator& communicator, std::vector<double>& samples, const Deadline& deadline);

/// Seconds that `body` takes, the work it left on `device`'s compute stream included.
template <class Body>
double seconds_of(Device& device, Body body) {
  const TimePoint start = steady_clock().now();
  body();
  device.compute_stream().synchronize();
  return std::chrono::duration<double>(steady_clock().now() - start).count();
}

}  // namespace dtrain
