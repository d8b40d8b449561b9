// What is wrong for all workers of a job is said by the first of them alone.
#pragma once

#include <chrono>
#include <thread>

#include "cluster/detect/detect.h"
#include "runtime/base/error.h"

namespace dtrain {

/// Runs `body`, which looks at what all workers of a job were given alike, as the worker at `place`, and
/// returns what it does. What is wrong with it, a UsageError, worker 0 says, and the one that started the
/// others ends them then: they wait for that before they say it too, as they do where they alone are wrong.
/// Throws what `body` throws.
template <class Body>
auto first_rank_error(const Placement& place, Body body) {
  try {
    return body();
  } catch (const UsageError&) {
    if (place.rank.value_or(0) > 0) {
      // Open MPI's mpirun ends the others a second after the first; dtrain-launch does it at once.
      using std::chrono::milliseconds;
      std::this_thread::sleep_for(milliseconds(place.system == JobSystem::openmpi ? 1500 : 300));
    }
    throw;
  }
}

}  // namespace dtrain
