#include "training/log/straggler_detector.h"

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

StragglerDetector::StragglerDetector(Communicator& communicator, const StepClock& clock)
    : communicator_(communicator), clock_(clock) {}

StragglerDetector::Seconds StragglerDetector::since_last() {
  Seconds spent{};
  for (std::size_t i = 0; i < kPhases.size(); ++i) {
    const double until_now = std::chrono::duration<double>(clock_.spent(kPhases[i])).count();
    spent[i] = std::max(until_now - before_[i], 0.0) / kEvery;
    before_[i] = until_now;
  }
  return spent;
}

std::optional<std::string> StragglerDetector::slow_rank(const std::vector<Seconds>& ranks) {
  std::vector<double> totals;
  for (const Seconds& rank : ranks) totals.push_back(std::accumulate(rank.begin(), rank.begin() + kOwn, 0.0));
  std::vector<double> sorted = totals;
  std::ranges::sort(sorted);
  const double median = sorted[(sorted.size() - 1) / 2];
  const auto slowest = static_cast<std::size_t>(std::ranges::max_element(totals) - totals.begin());
  const bool slow = totals[slowest] >= kSlow * median && totals[slowest] - median >= kLeastSecondsAStep;
  const int before = std::exchange(named_, slow ? static_cast<int>(slowest) : -1);
  if (!slow || before == named_) return std::nullopt;
  std::string where;
  for (std::size_t i = 0; i < kOwn; ++i)
    where += fmt::format("{}{} {:.1f}", i == 0 ? "" : ", ", name_of(kPhases[i]), ranks[slowest][i] * 1e3);
  return fmt::format(
      "rank {} computes for {:.1f} ms per step, the median rank for {:.1f} ms, and all wait for it: {} ms",
      slowest, totals[slowest] * 1e3, median * 1e3, where);
}

std::optional<PhaseComparison> StragglerDetector::after_step(const Deadline& deadline) {
  if (communicator_.size() == 1 || ++steps_ % kEvery != 0) return std::nullopt;
  Seconds own = since_last();
  std::vector<Seconds> all(static_cast<std::size_t>(communicator_.size()));
  communicator_
      .all_gather({.data = own.data(), .count = own.size(), .dtype = DType::f64},
                  {.data = all.data(), .count = own.size() * all.size(), .dtype = DType::f64}, "pace")
      ->wait(deadline);
  PhaseComparison found;
  for (std::size_t i = 0; i < kPhases.size(); ++i) {
    auto& [name, ranks] = found.milliseconds.emplace_back(name_of(kPhases[i]), std::vector<double>());
    for (const Seconds& rank : all) ranks.push_back(rank[i] * 1e3);
  }
  found.slow = slow_rank(all);
  return found;
}

}  // namespace dtrain
