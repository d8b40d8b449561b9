#include "training/log/straggler_detector.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "cluster/detect/cpus.h"
#include "cluster/detect/detect.h"
#include "parallel/share.h"
#include "training/options/parallelism.h"

namespace dtrain {
namespace {

constexpr double kSlow = 2;
// Below this a machine's other work decides who is slow.
constexpr double kLeastSecondsAStep = 1e-3;

}  // namespace

std::string place_of(const Device& device) {
  const std::string on = device.type() == DeviceType::cpu
                             ? "CPUs " + cpu_list_text(read_cpu_layout(false).allowed)
                             : device.name();
  return fmt::format("host {}, {}", this_machine().hostname, on);
}

std::vector<int> stages_of_ranks(const TrainConfig& config, int ranks) {
  std::vector<int> stages;
  if (axis_size(config, "pp") == 1) return stages;
  const MeshShape mesh(config.mesh, ranks);
  for (int rank = 0; rank < ranks; ++rank) stages.push_back(mesh.coordinate(rank, "pp"));
  return stages;
}

StragglerDetector::StragglerDetector(Communicator& communicator, const StepClock& clock, std::string where,
                                     StragglerScore score)
    : communicator_(communicator), clock_(clock), score_(std::move(score)), own_where_(std::move(where)) {}

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

// The time that has passed is rank 0's for all, so that all ranks come to the same conclusion.
void StragglerDetector::score(const std::vector<Seconds>& ranks, PhaseComparison& found) {
  std::vector<StepSeconds> seconds;
  for (const Seconds& rank : ranks) {
    const double own = std::accumulate(rank.begin(), rank.begin() + kOwn, 0.0);
    seconds.push_back(
        {.data = rank[0], .compute = own - rank[0], .step = std::accumulate(rank.begin(), rank.end(), 0.0)});
  }
  const auto elapsed = std::chrono::duration<double>(seconds.front().step * kEvery);
  for (const StragglerChange& change : score_.add(std::chrono::duration_cast<Duration>(elapsed), seconds))
    found.stragglers.emplace_back(change, text_of(change));
}

std::string StragglerDetector::text_of(const StragglerChange& change) const {
  const std::string& where = where_[static_cast<std::size_t>(change.rank)];
  const StepSeconds &own = change.seconds, &others = change.others;
  if (change.slowness.phase == StragglerPhase::none)
    return fmt::format(
        "rank {} ({}) is no straggler any more: its own part of a step takes {:.2f} times as "
        "long as that of the other ranks",
        change.rank, where, change.ratio);
  return fmt::format(
      "rank {} ({}) is a straggler: for minutes its own part of a step has taken {:.2f} times as long as "
      "that of the other ranks, which wait for it; slow is {} (ms per step, and the other ranks' median: "
      "data {:.1f} and {:.1f}, compute {:.1f} and {:.1f})",
      change.rank, where, change.ratio, name_of(change.slowness.phase), own.data * 1e3, others.data * 1e3,
      own.compute * 1e3, others.compute * 1e3);
}

std::optional<PhaseComparison> StragglerDetector::after_step(const Deadline& deadline) {
  if (communicator_.size() == 1 || ++steps_ % kEvery != 0) return std::nullopt;
  if (where_.empty()) where_ = gather_texts(communicator_, own_where_, deadline);
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
  score(all, found);
  return found;
}

}  // namespace dtrain
