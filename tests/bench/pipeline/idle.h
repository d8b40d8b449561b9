// How long the stages of a pipeline wait for each other. Stages are threads that sleep instead of computing,
// so that two cores show what a machine for each stage would.
#pragma once

#include <vector>

#include "parallel/schedule/stage_actions.h"
#include "runtime/base/clock.h"

namespace dtrain::bench {

struct IdleSetting {
  PipelineSchedule schedule = PipelineSchedule::one_forward_one_backward;
  int stages = 4;
  int micro_batches = 8;
  int chunks = 1;
  Duration pass = std::chrono::milliseconds(10);  ///< of a micro-batch forward in a stage, and backward again
};

struct Idle {
  double share = 1;             ///< of the stages' time in a step that they did not compute
  std::vector<int> most_alive;  ///< PipelineStats::most_alive, by stage
};

/// The share of the best of at most `steps` steps; no more of them once one is at most `enough`. A step is
/// timed from the moment when all stages are there to the moment when all have finished.
Idle measure_idle(const IdleSetting& setting, int steps, double enough = 0);

}  // namespace dtrain::bench
