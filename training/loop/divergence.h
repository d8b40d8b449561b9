// What training does about numbers that are not finite: nothing of them is saved, the run ends at the same
// place on every rank, what would lead there again is set aside, and the message names the cause.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "training/engine/engine.h"
#include "training/log/run_logger.h"
#include "training/loop/finite_check.h"
#include "training/loop/run_checkpoints.h"
#include "training/training_data.h"

namespace dtrain {

/// One rank's.
class DivergenceDetector {
 public:
  /// Everything is borrowed.
  DivergenceDetector(const TrainConfig& config, const TrainerEnvironment& environment,
                     const FiniteCheck& finite, const TrainingData& data, RunLogger& logger)
      : config_(config), env_(environment), finite_(finite), data_(data), logger_(logger) {}

  /// Collective where ranks step together. Throws LossError where `parts`, of this rank, or another rank's
  /// are not finite.
  void check(const RankState& parts, const RunProgress& at);
  /// The same of what an evaluation found: throws LossError unless the data are to blame, which is reported.
  void check(const Evaluation& found, const RunProgress& at);

  /// Counts skipped steps, and warns when loss scaling is near its end.
  void watch(const StepReport& report);
  /// At the end: warns where all steps were skipped.
  void report_skipped(const RunProgress& at);

  /// Collective where ranks step together: records the end that `error` is, and sets aside those of
  /// `checkpoints` that lead there. Returns the error with its cause and what to do.
  LossError end_run(const LossError& error, RunCheckpoints& checkpoints, const RunProgress& at);

 private:
  /// The first sample with such a value among those that the ranks look at, in words; empty: there is none.
  std::string bad_sample(const std::shared_ptr<const Source>& source, std::vector<std::int64_t> own,
                         std::int64_t epoch);
  std::string advice(const LossError& error, const std::string& sample) const;
  Deadline deadline() const { return Deadline::after(config_.collective_timeout); }
  bool is_root() const { return env_.communicator.rank() == 0; }

  const TrainConfig& config_;
  const TrainerEnvironment& env_;
  const FiniteCheck& finite_;
  const TrainingData& data_;
  RunLogger& logger_;
  std::int64_t skipped_ = 0;  ///< steps of this start whose gradients overflowed
  bool small_scale_ = false;  ///< the loss scale fell below 1; said once
};

}  // namespace dtrain
