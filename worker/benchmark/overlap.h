// How much of a step's communication is hidden behind its computation.
#pragma once

#include "worker/benchmark/step_runner.h"

namespace dtrain {

/// In seconds, each as its slowest worker saw it.
struct StepSamples {
  std::vector<double> step;           ///< whole steps
  std::vector<double> compute;        ///< the steps beside them, without communication
  std::vector<double> communication;  ///< the communication alone; empty for a single worker
};

/// What communication adds to a step: of each step and the one without communication beside it.
struct Exposed {
  double median = 0, lower = 0, upper = 0;  ///< with the quartiles; below 0 where noise is larger
};
Exposed exposed(const StepSamples& samples);

/// The share of the communication's time that does not show in the step, by the medians, in [0, 1].
double hidden_share(const StepSamples& samples);

/// Collective. Each iteration runs a whole step, one without communication and the communication alone, in
/// turn, so that whatever else the machine does falls on all three; before each the ranks meet. Throws
/// PeerError.
StepSamples measure_overlap(StepRunner& runner, Communicator& communicator, Device& device, int warmup,
                            int iterations, Duration timeout);

}  // namespace dtrain
