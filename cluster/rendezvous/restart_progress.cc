// Counts; see the header for what counts.
#include "cluster/rendezvous/restart_progress.h"

#include <fmt/format.h>

namespace dtrain::rendezvous {

void RestartProgress::failed_at(std::int64_t step) {
  if (step < 0) return;
  if (step > best_step_) {
    best_step_ = step;
    stalled_ = 0;
  } else {
    ++stalled_;
  }
}

std::string RestartProgress::text() const {
  const std::string where =
      best_step_ == 0 ? "none finished a step" : fmt::format("none came further than step {}", best_step_);
  return fmt::format("no progress over {} restart{}: {}", stalled_, stalled_ == 1 ? "" : "s", where);
}

}  // namespace dtrain::rendezvous
