#include "parallel/schedule/stage_actions.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "runtime/base/error.h"

namespace dtrain {

namespace {

using Kind = StageAction::Kind;

/// `forwards` and `backwards`: what comes first, second, … of either; `ahead` forwards come before the first
/// backward, from then on they take turns.
template <class Forwards, class Backwards>
std::vector<StageAction> take_turns(int count, int ahead, const Forwards& forwards,
                                    const Backwards& backwards) {
  std::vector<StageAction> actions;
  for (int k = 0; k < ahead; ++k) actions.push_back(forwards(k));
  for (int k = ahead; k < count; ++k) {
    actions.push_back(forwards(k));
    actions.push_back(backwards(k - ahead));
  }
  for (int k = count - ahead; k < count; ++k) actions.push_back(backwards(k));
  return actions;
}

/// How many forwards a stage makes before its first backward.
int forwards_ahead(PipelineSchedule schedule, int stage, int stages, int micro_batches, int chunks) {
  switch (schedule) {
    case PipelineSchedule::gpipe:
      return micro_batches;
    case PipelineSchedule::one_forward_one_backward:
      return std::min(stages - stage - 1, micro_batches);
    case PipelineSchedule::interleaved:
      if (micro_batches % stages != 0) return chunks * micro_batches;
      return std::min(2 * (stages - stage - 1) + (chunks - 1) * stages, chunks * micro_batches);
  }
  throw UsageError("pipeline: expected one of three schedules");
}

void check_chunks(PipelineSchedule schedule, int chunks) {
  const bool interleaved = schedule == PipelineSchedule::interleaved;
  if (interleaved ? chunks < 2 : chunks != 1) {
    throw UsageError(fmt::format("pipeline: expected {}, got {} chunks a stage",
                                 interleaved ? "2 chunks or more a stage for interleaved stages"
                                             : "one chunk a stage for a schedule that is not interleaved",
                                 chunks));
  }
}

}  // namespace

// Interleaved: `stages` micro-batches go through a chunk, then the same through the next one, and so on; all
// of them where they are no multiple of the stages.
std::vector<StageAction> stage_actions(PipelineSchedule schedule, int stage, int stages, int micro_batches,
                                       int chunks) {
  check_chunks(schedule, chunks);
  const int ahead = forwards_ahead(schedule, stage, stages, micro_batches, chunks);
  if (schedule != PipelineSchedule::interleaved) {
    return take_turns(
        micro_batches, ahead,
        [](int k) {
          return StageAction{Kind::forward, k};
        },
        [](int k) {
          return StageAction{Kind::backward, k};
        });
  }
  const int together = micro_batches % stages == 0 ? stages : micro_batches, round = together * chunks;
  const auto micro_batch = [&](int k) { return k / round * together + k % together; };
  const auto turn = [&](int k) { return k % round / together; };
  return take_turns(
      micro_batches * chunks, ahead,
      [&](int k) {
        return StageAction{Kind::forward, micro_batch(k), turn(k)};
      },
      [&](int k) {
        return StageAction{Kind::backward, micro_batch(k), chunks - 1 - turn(k)};
      });
}

int most_alive(std::span<const StageAction> actions) {
  int alive = 0, most = 0;
  for (const StageAction& action : actions) {
    alive += action.kind == StageAction::Kind::forward ? 1 : -1;
    most = std::max(most, alive);
  }
  return most;
}

int alive_bound(PipelineSchedule schedule, int stage, int stages, int micro_batches, int chunks) {
  const int ahead = forwards_ahead(schedule, stage, stages, micro_batches, chunks);
  return std::min(ahead + 1, micro_batches * chunks);
}

double idle_share(int stages, int micro_batches, int chunks) {
  return static_cast<double>(stages - 1) / (chunks * micro_batches + stages - 1);
}

// best[k][i]: the most expensive of k runs that hold the first i parts.
std::vector<std::size_t> cut_evenly(std::span<const double> costs, int stages,
                                    const std::vector<bool>& needed) {
  const std::size_t parts = costs.size(), runs = static_cast<std::size_t>(stages);
  if (parts < runs) {
    throw UsageError(
        fmt::format("pipeline: expected a network of at least one part for each of {} stages, got {} parts",
                    stages, parts));
  }
  if (const auto usable = std::ranges::count(needed, true); !needed.empty() && usable < stages) {
    throw UsageError(
        fmt::format("pipeline: expected a part with parameters for each of {} stages, got {} of {} parts",
                    stages, usable, parts));
  }
  std::vector<std::vector<double>> best(runs + 1,
                                        std::vector<double>(parts + 1, std::numeric_limits<double>::max()));
  std::vector<std::vector<std::size_t>> from(runs + 1, std::vector<std::size_t>(parts + 1));
  best[0][0] = 0;
  for (std::size_t k = 1; k <= runs; ++k) {
    for (std::size_t end = k; end <= parts; ++end) {
      double run = 0;
      bool enough = needed.empty();
      for (std::size_t begin = end; begin-- > k - 1;) {
        run += costs[begin];
        enough = enough || needed[begin];
        if (!enough) continue;
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
