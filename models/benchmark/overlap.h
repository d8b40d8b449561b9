// How much of a step's communication is hidden behind its computation.
#pragma once

#include "models/benchmark/step_runner.h"

namespace dtrain {

/// Medians in seconds, each step as its slowest worker saw it.
struct StepTimes {
  double step = 0, best_step = 0;
  double compute = 0;        ///< the step without communication
  double communication = 0;  ///< the communication without computation; 0 for a world of one

  /// What communication adds to the step.
  double exposed() const noexcept { return step - compute; }
  /// The share of `communication` that does not show in the step, in [0, 1].
  double hidden_share() const noexcept;
};

/// Collective. Each iteration runs a whole step, one without communication and the communication alone, in
/// turn, so that whatever else the machine does meets all three; before each the ranks meet. Throws
/// PeerError.
StepTimes measure_overlap(StepRunner& runner, Communicator& communicator, Device& device, int warmup,
                          int iterations, Duration timeout);

}  // namespace dtrain
