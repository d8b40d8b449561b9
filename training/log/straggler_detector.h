// Whether one rank is slower than the others, and at what: all of them wait for it in every step.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collectives/communicator.h"
#include "runtime/metrics/step_clock.h"
#include "training/log/straggler_score.h"
#include "training/options/train_config.h"

namespace dtrain {

/// What one comparison found; the same on every rank.
struct PhaseComparison {
  /// By phase: of each rank, milliseconds a step since the comparison before.
  std::vector<std::pair<std::string, std::vector<double>>> milliseconds;
  /// A line about a rank whose own work takes twice as long as that of the median rank, when it begins to be
  /// so.
  std::optional<std::string> slow;
  /// Who has been slower than the others for minutes, when that begins and ends, and a line about each.
  std::vector<std::pair<StragglerChange, std::string>> stragglers;
};

/// Where this process computes, for people: "host box, CPUs 0-3".
std::string place_of(const Device& device);

/// By rank: its stage, where the config has a pipeline, whose stages compute different parts of a network;
/// else empty.
std::vector<int> stages_of_ranks(const TrainConfig& config, int ranks);

/// One rank's; used by the training thread. For devices that do not run ahead, whose phases the host can
/// time.
class StragglerDetector {
 public:
  /// Steps between two comparisons.
  static constexpr std::int64_t kEvery = 50;

  /// The first two are borrowed. `where`: this rank's machine and device, for people.
  StragglerDetector(Communicator& communicator, const StepClock& clock, std::string where,
                    StragglerScore score);

  /// Collective, after each step. Every kEvery steps: a comparison, except where there is one rank alone.
  /// Throws PeerError.
  std::optional<PhaseComparison> after_step(const Deadline& deadline);

 private:
  /// What a rank does by itself comes first; the rest of a step is waiting for others.
  static constexpr std::array kPhases = {Phase::data,      Phase::forward,       Phase::backward,
                                         Phase::optimizer, Phase::communication, Phase::checkpoint,
                                         Phase::other};
  static constexpr std::size_t kOwn = 4;
  using Seconds = std::array<double, kPhases.size()>;  ///< a step, by phase

  Seconds since_last();
  std::optional<std::string> slow_rank(const std::vector<Seconds>& ranks);
  void score(const std::vector<Seconds>& ranks, PhaseComparison& found);
  std::string text_of(const StragglerChange& change) const;

  Communicator& communicator_;
  const StepClock& clock_;
  std::int64_t steps_ = 0;
  Seconds before_{};
  int named_ = -1;  ///< the rank that was slow at the last comparison
  StragglerScore score_;
  std::string own_where_;
  std::vector<std::string> where_;  ///< by rank; empty before the first comparison
};

}  // namespace dtrain
