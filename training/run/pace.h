// Whether one rank is much slower than the others, and at what: all of them wait for it in every step.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "collectives/communicator.h"
#include "runtime/metrics/step_clock.h"

namespace dtrain {

/// One rank's; used by the training thread. For devices that do not run ahead, whose phases the host can
/// time.
class Pace {
 public:
  /// Steps between two comparisons.
  static constexpr std::int64_t kEvery = 50;

  /// Both borrowed.
  Pace(Communicator& communicator, const StepClock& clock);

  /// Collective, after each step. Every kEvery steps: a line about a rank whose own work takes twice as long
  /// as that of the median rank, when it begins to be so. The same on every rank. Throws PeerError.
  std::optional<std::string> after_step(const Deadline& deadline);

 private:
  /// What a rank does by itself; the rest of a step is waiting for others.
  static constexpr std::array kOwn = {Phase::data, Phase::forward, Phase::backward, Phase::optimizer};
  using Seconds = std::array<double, kOwn.size()>;

  Communicator& communicator_;
  const StepClock& clock_;
  std::int64_t steps_ = 0;
  Seconds before_{};
  int named_ = -1;  ///< the rank that was slow at the last comparison
};

}  // namespace dtrain
