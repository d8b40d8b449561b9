// When a stage of a pipeline runs which micro-batch. Pure arithmetic.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace dtrain {

/// GPipe (Huang et al. 2019): all forwards, then all backwards. 1F1B (Narayanan et al. 2019,
/// PipeDream-Flush): one forward, one backward as soon as that is possible, so that fewer micro-batches are
/// alive. Interleaved 1F1B (Narayanan et al. 2021, Megatron-LM): each stage has several chunks of the
/// network, so that a micro-batch comes by several times and stages wait less.
enum class PipelineSchedule { gpipe, one_forward_one_backward, interleaved };

struct StageAction {
  enum class Kind { forward, backward } kind = Kind::forward;
  int micro_batch = 0;
  int chunk = 0;  ///< of this stage's, in the order of the network

  bool operator==(const StageAction&) const = default;
};

/// What stage `stage` of `stages` does in a step, in order. Backwards come in the order of the micro-batches
/// for each chunk, so gradients are added up as in accumulation. `chunks`: at least 2 where interleaved, else
/// 1; throws UsageError for another number. Where stages are interleaved and micro-batches are no multiple of
/// them (in the short last step of an epoch), all forwards come before all backwards.
std::vector<StageAction> stage_actions(PipelineSchedule schedule, int stage, int stages, int micro_batches,
                                       int chunks = 1);

/// The most forwards that wait for their backward at any time: micro-batches, of a chunk each.
int most_alive(std::span<const StageAction> actions);

/// What most_alive() is at most: m for GPipe, p - s for 1F1B, and 2 (p - s - 1) + (v - 1) p + 1 for
/// interleaved stages, where each is a micro-batch in one of v chunks; never more than m v, which it is where
/// these are no multiple of the stages.
int alive_bound(PipelineSchedule schedule, int stage, int stages, int micro_batches, int chunks = 1);

/// The share of a step that a stage waits, if all of them take the same time: (p - 1) / (v m + p - 1).
double idle_share(int stages, int micro_batches, int chunks = 1);

/// Cuts parts of these costs into `stages` runs of at least one part so that the most expensive run is as
/// cheap as possible; gives where each ends. `needed`, one a part: a run needs a part for which it is true;
/// empty: any part will do. Throws UsageError where there are fewer such parts than stages.
std::vector<std::size_t> cut_evenly(std::span<const double> costs, int stages,
                                    const std::vector<bool>& needed = {});

}  // namespace dtrain
