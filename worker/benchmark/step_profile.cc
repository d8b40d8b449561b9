#include "worker/benchmark/step_profile.h"

#include <algorithm>
#include <map>

namespace dtrain {
namespace {

constexpr std::string_view kPhase = "phase", kCollective = "collective", kCommunication = "communication";

struct PhaseRows {
  double seconds = 0, in_kernels = 0, count = 0;
  std::map<std::string, ProfileRow> operations;
};

double seconds_of(const TimedSpan& span) { return std::chrono::duration<double>(span.duration()).count(); }

/// The phases in the order in which they came.
std::vector<TimedSpan> phases_of(const std::vector<TimedSpan>& spans) {
  std::vector<TimedSpan> phases;
  std::copy_if(spans.begin(), spans.end(), std::back_inserter(phases),
               [](const TimedSpan& span) { return span.category == kPhase; });
  std::sort(phases.begin(), phases.end(),
            [](const TimedSpan& a, const TimedSpan& b) { return a.start < b.start; });
  return phases;
}

const TimedSpan* phase_around(const std::vector<TimedSpan>& phases, const TimedSpan& span) {
  const auto after =
      std::upper_bound(phases.begin(), phases.end(), span.start,
                       [](TimePoint start, const TimedSpan& phase) { return start < phase.start; });
  if (after == phases.begin()) return nullptr;
  const TimedSpan& phase = *std::prev(after);
  return span.end <= phase.end && span.thread == phase.thread ? &phase : nullptr;
}

void append(const std::string& phase, const PhaseRows& found, double steps, StepProfile& profile) {
  const auto first = static_cast<std::ptrdiff_t>(profile.rows.size());
  for (const auto& [operation, row] : found.operations) {
    profile.rows.push_back({phase, operation, row.calls / steps, row.seconds / steps, row.flops / steps});
    profile.flops += row.flops / steps;
  }
  std::sort(profile.rows.begin() + first, profile.rows.end(),
            [](const ProfileRow& a, const ProfileRow& b) { return a.seconds > b.seconds; });
  const std::string_view rest = phase == kCommunication ? kWaiting : kOutsideKernels;
  profile.rows.push_back(
      {phase, std::string(rest), found.count / steps, (found.seconds - found.in_kernels) / steps, 0});
  profile.seconds += found.seconds / steps;
}

}  // namespace

StepProfile make_profile(const std::vector<TimedSpan>& spans, int steps, ProfileBy by) {
  const std::vector<TimedSpan> phases = phases_of(spans);
  std::vector<std::string> order;
  std::map<std::string, PhaseRows> found;
  for (const TimedSpan& phase : phases) {
    if (!found.contains(phase.name)) order.push_back(phase.name);
    PhaseRows& rows = found[phase.name];
    rows.seconds += seconds_of(phase);
    rows.count += 1;
  }
  for (const TimedSpan& span : spans) {
    if (span.category == kPhase || span.category == kCollective) continue;
    const TimedSpan* phase = phase_around(phases, span);
    if (phase == nullptr) continue;
    PhaseRows& rows = found[phase->name];
    ProfileRow& row = rows.operations[by == ProfileBy::kind ? std::string(span.category) : span.name];
    row.calls += 1;
    row.seconds += seconds_of(span);
    row.flops += span.flops;
    rows.in_kernels += seconds_of(span);
  }
  StepProfile profile;
  for (const std::string& phase : order) append(phase, found[phase], std::max(steps, 1), profile);
  return profile;
}

}  // namespace dtrain
