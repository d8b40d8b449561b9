#include "parallel/pipeline/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "runtime/base/error.h"

namespace dtrain {

std::vector<StageAction> stage_actions(PipelineSchedule schedule, int stage, int stages, int micro_batches) {
  using Kind = StageAction::Kind;
  const int ahead =
      schedule == PipelineSchedule::gpipe ? micro_batches : std::min(stages - stage - 1, micro_batches);
  std::vector<StageAction> actions;
  for (int i = 0; i < ahead; ++i) actions.push_back({Kind::forward, i});
  for (int i = ahead; i < micro_batches; ++i) {
    actions.push_back({Kind::forward, i});
    actions.push_back({Kind::backward, i - ahead});
  }
  for (int i = micro_batches - ahead; i < micro_batches; ++i) actions.push_back({Kind::backward, i});
  return actions;
}

int most_alive(std::span<const StageAction> actions) {
  int alive = 0, most = 0;
  for (const StageAction& action : actions) {
    alive += action.kind == StageAction::Kind::forward ? 1 : -1;
    most = std::max(most, alive);
  }
  return most;
}

double idle_share(int stages, int micro_batches) {
  return static_cast<double>(stages - 1) / (micro_batches + stages - 1);
}

// best[k][i]: the most expensive of k runs that hold the first i parts.
std::vector<std::size_t> cut_evenly(std::span<const double> costs, int stages) {
  const std::size_t parts = costs.size(), runs = static_cast<std::size_t>(stages);
  if (parts < runs) {
    throw UsageError(
        fmt::format("pipeline: expected a network of at least one part for each of {} stages, got {} parts",
                    stages, parts));
  }
  std::vector<std::vector<double>> best(runs + 1,
                                        std::vector<double>(parts + 1, std::numeric_limits<double>::max()));
  std::vector<std::vector<std::size_t>> from(runs + 1, std::vector<std::size_t>(parts + 1));
  best[0][0] = 0;
  for (std::size_t k = 1; k <= runs; ++k) {
    for (std::size_t end = k; end <= parts; ++end) {
      double run = 0;
      for (std::size_t begin = end; begin-- > k - 1;) {
        run += costs[begin];
        const double most = std::max(run, best[k - 1][begin]);
        if (most < best[k][end]) best[k][end] = most, from[k][end] = begin;
      }
    }
  }
  std::vector<std::size_t> ends(runs);
  for (std::size_t k = runs, end = parts; k > 0; end = from[k--][end]) ends[k - 1] = end;
  return ends;
}

}  // namespace dtrain
