// From what a sweep is asked for to its runs. Pure: the same file gives the same runs, in the same order.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "worker/sweep/config.h"

namespace dtrain::sweep {

/// One training of a sweep.
struct Run {
  std::string name;  ///< "lr=0.1,momentum=0.9": of its folder; says what makes it differ from the others
  std::vector<std::pair<std::string, std::string>> options;  ///< all of them, by name
  std::vector<std::pair<std::string, std::string>> swept;    ///< those that differ between runs

  bool operator==(const Run&) const = default;
};

/// A grid's runs, the last option changing fastest, or those a random sweep draws. Each option's draws depend
/// on the seed, its own name and the run's number alone: more runs, or one more option, leave them as they
/// are. Throws UsageError when there are more than 100 000, or fewer different ones than asked for.
std::vector<Run> make_runs(const SweepConfig& config);

/// The words for the program: "--lr=0.1", ….
std::vector<std::string> arguments_of(const Run& run);

}  // namespace dtrain::sweep
