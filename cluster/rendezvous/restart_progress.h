// Whether restarts of a job get it anywhere: a job that fails at the same place each time is better ended
// than restarted as often as allowed. Pure.
#pragma once

#include <cstdint>
#include <string>

namespace dtrain::rendezvous {

class RestartProgress {
 public:
  /// `most_stalled`: so many restarts in a row without progress end the job; 0: any number may.
  explicit RestartProgress(int most_stalled) : most_stalled_(most_stalled) {}

  /// A start has failed when its workers had finished `step`; below 0: not known, as of programs that do not
  /// say it, which then counts for nothing. The first start is what restarts are compared with.
  void failed_at(std::int64_t step);
  /// The job should not be restarted again.
  bool stalled() const noexcept { return most_stalled_ > 0 && stalled_ >= most_stalled_; }
  /// "no progress over 3 restarts: none came further than step 412"
  std::string text() const;

  /// For a successor.
  std::int64_t best_step() const noexcept { return best_step_; }
  int stalled_restarts() const noexcept { return stalled_; }
  void inherit(std::int64_t best_step, int stalled_restarts) noexcept {
    best_step_ = best_step;
    stalled_ = stalled_restarts;
  }

 private:
  int most_stalled_;
  std::int64_t best_step_ = -1;
  int stalled_ = 0;
};

}  // namespace dtrain::rendezvous
