// Prints the share of a step that the stages of a pipeline wait, measured and by the formula, and the most
// micro-batches alive on each stage. Computing is replaced by sleeps.
//
//   pipeline_idle [STAGES, 4] [MILLISECONDS of a micro-batch in a stage, forward, 20] [STEPS, 3]
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>

#include "tests/bench/pipeline/idle.h"

namespace dtrain::bench {
namespace {

int run(int stages, Duration pass, int steps) {
  struct Row {
    const char* name;
    PipelineSchedule schedule;
    int chunks;
  };
  constexpr Row kRows[] = {{"gpipe", PipelineSchedule::gpipe, 1},
                           {"1f1b", PipelineSchedule::one_forward_one_backward, 1},
                           {"interleaved, 2 chunks", PipelineSchedule::interleaved, 2},
                           {"interleaved, 4 chunks", PipelineSchedule::interleaved, 4}};
  fmt::print("{} stages, the best of {} steps\n{:<24} {:>13} {:>9} {:>9} {:>9}  {}\n", stages, steps, "",
             "micro-batches", "formula", "measured", "points", "most alive, by stage");
  for (const Row& row : kRows) {
    for (const int times : {2, 4}) {
      const int count = times * stages;
      const Idle idle = measure_idle({row.schedule, stages, count, row.chunks, pass}, steps);
      const double formula = idle_share(stages, count, row.chunks);
      fmt::print("{:<24} {:>13} {:>8.1f}% {:>8.1f}% {:>+9.1f}  {}\n", row.name, count, 100 * formula,
                 100 * idle.share, 100 * (idle.share - formula), fmt::join(idle.most_alive, ", "));
    }
  }
  return 0;
}

}  // namespace
}  // namespace dtrain::bench

int main(int argc, char** argv) {
  const int stages = argc > 1 ? std::atoi(argv[1]) : 4, milliseconds = argc > 2 ? std::atoi(argv[2]) : 20,
            steps = argc > 3 ? std::atoi(argv[3]) : 3;
  if (stages < 2 || milliseconds < 1 || steps < 1) {
    fmt::print(stderr, "pipeline_idle: expected at least 2 stages, 1 millisecond and 1 step\n");
    return 2;
  }
  return dtrain::bench::run(stages, std::chrono::milliseconds(milliseconds), steps);
}
