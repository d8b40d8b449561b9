// Where on its learning rate's curve a run is, and what is said when that is not where it was.
#pragma once

#include <map>
#include <string>

#include "runtime/base/log.h"
#include "runtime/base/options.h"
#include "runtime/optim/lr_schedule.h"
#include "runtime/optim/optimizer.h"
#include "training/log/run_progress.h"

namespace dtrain {

class RunSchedule {
 public:
  /// `samples`: of the training split. `factor`: the task's own, may be empty. `config` and `options` are
  /// borrowed.
  RunSchedule(const TrainConfig& config, const Options& options, std::int64_t samples, LrFactor factor);

  /// Of the step after `at`.
  double lr(const RunProgress& at) const { return schedule_.at(position(at)); }
  /// Gives `optimizers`, those of a rank, their rates of the step after `at`; returns the one to be recorded:
  /// the run's, or of optimizers of the task's own the first one's.
  double set(const std::vector<Optimizer*>& optimizers, const RunProgress& at) const;
  /// How many plateaus have been found by now (MetricMonitor).
  void set_plateaus(int plateaus) noexcept { schedule_.plateaus = plateaus; }

  /// What resume() reads, for a checkpoint's TrainingState::extra.
  std::map<std::string, std::string> entries(const RunProgress& at) const;
  /// Continues the curve of the run that saved `entries`; `at` is where it is. Lines for people go to `log`
  /// (null: nowhere): one for what this start does otherwise, one where the learning rate jumps.
  void resume(const std::map<std::string, std::string>& entries, const RunProgress& at, Log* log);

 private:
  /// How far the run is, in steps of the schedule.
  double position(const RunProgress& at) const;
  std::int64_t steps_per_epoch() const;
  LrSchedule make() const;

  const TrainConfig& config_;
  const Options& options_;
  std::int64_t samples_;
  std::int64_t batch_;  ///< samples of the steps that it counts in: those of the run's first start
  LrFactor factor_;
  LrSchedule schedule_;
};

}  // namespace dtrain
