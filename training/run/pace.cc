#include "training/run/pace.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace dtrain {
namespace {

constexpr double kSlow = 2;
// Below this a machine's other work decides who is slow.
constexpr double kLeastSecondsAStep = 1e-3;

}  // namespace

Pace::Pace(Communicator& communicator, const StepClock& clock) : communicator_(communicator), clock_(clock) {}

std::optional<std::string> Pace::after_step(const Deadline& deadline) {
  if (communicator_.size() == 1 || ++steps_ % kEvery != 0) return std::nullopt;
  Seconds own{};
  for (std::size_t i = 0; i < kOwn.size(); ++i) {
    const double until_now = std::chrono::duration<double>(clock_.spent(kOwn[i])).count();
    own[i] = std::max(until_now - before_[i], 0.0) / kEvery;
    before_[i] = until_now;
  }
  std::vector<Seconds> all(static_cast<std::size_t>(communicator_.size()));
  communicator_
      .all_gather({.data = own.data(), .count = kOwn.size(), .dtype = DType::f64},
                  {.data = all.data(), .count = kOwn.size() * all.size(), .dtype = DType::f64}, "pace")
      ->wait(deadline);
  std::vector<double> totals;
  for (const Seconds& rank : all) totals.push_back(std::accumulate(rank.begin(), rank.end(), 0.0));
  std::vector<double> sorted = totals;
  std::ranges::sort(sorted);
  const double median = sorted[(sorted.size() - 1) / 2];
  const auto slowest = static_cast<std::size_t>(std::ranges::max_element(totals) - totals.begin());
  const bool slow = totals[slowest] >= kSlow * median && totals[slowest] - median >= kLeastSecondsAStep;
  const int before = std::exchange(named_, slow ? static_cast<int>(slowest) : -1);
  if (!slow || before == named_) return std::nullopt;
  std::string where;
  for (std::size_t i = 0; i < kOwn.size(); ++i)
    where += fmt::format("{}{} {:.1f}", i == 0 ? "" : ", ", name_of(kOwn[i]), all[slowest][i] * 1e3);
  return fmt::format(
      "rank {} takes {:.1f} ms a step for its own work, the median rank {:.1f} ms, and all wait for it: {} "
      "ms",
      slowest, totals[slowest] * 1e3, median * 1e3, where);
}

}  // namespace dtrain
