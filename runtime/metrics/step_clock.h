// Where a step's time goes: wall time by phase, always measured (a few clock readings a step), printed on
// request.
#pragma once

#include <array>
#include <cstddef>
#include <string>

#include "runtime/base/clock.h"
#include "runtime/base/spans.h"

namespace dtrain {

enum class Phase : std::size_t { data, forward, backward, communication, optimizer, checkpoint, other };

class StepClock {
 public:
  explicit StepClock(const Clock& clock = steady_clock()) : clock_(&clock), last_(clock.now()) {}

  /// What ran since the last call (or construction) was `phase`.
  void lap(Phase phase) noexcept {
    const TimePoint now = clock_->now();
    spent_[static_cast<std::size_t>(phase)] += now - last_;
    last_ = now;
  }
  /// Forgets the time since the last call: it belongs to no step.
  void skip() noexcept { last_ = clock_->now(); }
  void finish_step() noexcept { ++steps_; }

  std::int64_t steps() const noexcept { return steps_; }
  Duration spent(Phase phase) const noexcept { return spent_[static_cast<std::size_t>(phase)]; }
  Duration total() const noexcept;
  /// A table: phase, milliseconds a step, share. Times are this rank's; communication is only what was waited
  /// for.
  std::string table() const;

 private:
  const Clock* clock_;
  TimePoint last_;
  std::array<Duration, 7> spent_{};
  std::int64_t steps_ = 0;
};

/// "forward", …
std::string_view name_of(Phase phase) noexcept;

/// While it lives the thread is in `phase`: a span of the phase's name in `spans`, and at the end a lap of
/// `clock`.
class PhaseScope {
 public:
  /// Both borrowed; `spans` may be null.
  PhaseScope(StepClock& clock, SpanRecorder* spans, Phase phase)
      : clock_(clock), phase_(phase), span_(spans, name_of(phase), "phase") {}
  ~PhaseScope() { clock_.lap(phase_); }
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;

 private:
  StepClock& clock_;
  Phase phase_;
  SpanScope span_;
};

/// What times the phases of one worker's steps; handed by value, borrows both.
struct StepTimer {
  StepClock* clock = nullptr;
  SpanRecorder* spans = nullptr;  ///< null: no spans

  [[nodiscard]] PhaseScope phase(Phase phase) const { return {*clock, spans, phase}; }
};

}  // namespace dtrain
