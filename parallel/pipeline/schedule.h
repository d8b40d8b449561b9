// When a stage of a pipeline runs which micro-batch. Pure arithmetic.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace dtrain {

/// GPipe (Huang et al. 2019): all forwards, then all backwards. 1F1B (Narayanan et al. 2019,
/// PipeDream-Flush): one forward, one backward as soon as that is possible, so that fewer micro-batches are
/// alive.
enum class PipelineSchedule { gpipe, one_forward_one_backward };

struct StageAction {
  enum class Kind { forward, backward } kind = Kind::forward;
  int micro_batch = 0;

  bool operator==(const StageAction&) const = default;
};

/// What stage `stage` of `stages` does in a step, in order. Backwards come in the order of the micro-batches,
/// so gradients are added up as in accumulation.
std::vector<StageAction> stage_actions(PipelineSchedule schedule, int stage, int stages, int micro_batches);

/// The most micro-batches that wait for their backward at any time.
int most_alive(std::span<const StageAction> actions);

/// The share of a step that a stage waits, if all of them take the same time: (p - 1) / (m + p - 1).
double idle_share(int stages, int micro_batches);

/// Cuts parts of these costs into `stages` runs of at least one part so that the most expensive run is as
/// cheap as possible; gives where each ends. Throws UsageError where there are fewer parts than stages.
std::vector<std::size_t> cut_evenly(std::span<const double> costs, int stages);

}  // namespace dtrain
