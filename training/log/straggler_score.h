// Which ranks have been slower than the others for minutes: what one comparison shows may be a moment's. Pure
// arithmetic, the same on every rank that is given the same numbers.
#pragma once

#include <cstddef>
#include <deque>
#include <span>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/files/worker_status.h"

namespace dtrain {

/// What a rank did by itself in a step, without waiting for others, and the whole step; seconds.
struct StepSeconds {
  double data = 0, compute = 0, step = 0;

  double own() const noexcept { return data + compute; }
};

/// A rank that begins to be a straggler, or has ceased to be one. Times are those of a step, averaged over
/// the window.
struct StragglerChange {
  int rank = 0;
  Slowness slowness{};    ///< phase none: it has recovered
  double ratio = 0;       ///< its own part of a step, in those of the others' median
  StepSeconds seconds{};  ///< its own
  StepSeconds others{};   ///< of the median of the others: data and compute each
};

/// One rank's. A rank is a straggler when its own part of a step has taken kSlow times as long as that of the
/// median of the others, in most of the time of a window; and it is one until that falls below kRecovered.
///
///     StragglerScore score;
///     for (const StragglerChange& change : score.add(elapsed, seconds_of_all_ranks)) …
class StragglerScore {
 public:
  static constexpr Duration kWindow = std::chrono::minutes(2);
  static constexpr double kSlow = 1.3, kRecovered = 1.15;
  /// What a straggler costs in each step, at least: below that it is not worth a word.
  static constexpr double kLeastShare = 0.03;

  /// `alike`: by rank, a number that is equal for ranks that do the same work, which alone are compared (the
  /// stages of a pipeline do not); empty: all do.
  explicit StragglerScore(std::vector<int> alike = {}, Duration window = kWindow);

  /// `ranks` have taken this long in the mean of the steps since the last call, which were made in `elapsed`.
  /// Who begins or ceases to be a straggler by that, in the order of ranks.
  std::vector<StragglerChange> add(Duration elapsed, std::span<const StepSeconds> ranks);

 private:
  /// One rank beside the others.
  struct Measured {
    StepSeconds seconds{}, others{};
    double ratio = 1;
  };
  /// Some seconds of steps, so that many short comparisons take little room.
  struct Sample {
    Duration elapsed{};
    std::vector<Measured> ranks;
  };

  void take(Duration elapsed, std::span<const StepSeconds> ranks);
  /// Takes what has been gathered into the window, from which the oldest sample goes when the rest suffices.
  void end_sample();
  Measured measured(std::size_t rank) const;
  /// Of the ranks that are like `rank`, without it; nothing where there are none.
  std::vector<const StepSeconds*> others_of(std::size_t rank) const;
  StragglerChange score_of(std::size_t rank) const;

  std::vector<int> alike_;
  Duration window_;
  Duration gathered_time_{};
  std::vector<StepSeconds> gathered_;  ///< by rank: means of the sample that is not complete
  std::deque<Sample> samples_;
  Duration covered_{};      ///< by samples_
  std::vector<bool> slow_;  ///< by rank
};

}  // namespace dtrain
