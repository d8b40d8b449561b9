// How far a run is.
#pragma once

#include <cstdint>
#include <optional>

#include "runtime/data/step_sampler.h"
#include "training/options/train_config.h"

namespace dtrain {

/// The same on every rank that steps with the others.
struct RunProgress {
  std::int64_t step = 0, epoch = 0;  ///< finished steps; where the next one is
  std::int64_t position = 0;         ///< samples of the epoch that all ranks together have taken
  std::int64_t total_steps = 0;
  std::int64_t resumed_from = 0;
  std::int64_t start = 0;  ///< which start of the run this is, from 1
  std::optional<std::int64_t> saved_step = {}, evaluated_step = {};

  /// Samples that all ranks together have taken since the run began, of epochs of `size` samples.
  std::int64_t samples(std::int64_t size, const TrainConfig& config) const;
  bool finished() const { return step >= total_steps; }
  /// The epoch that the last step was in; -1 before the first.
  std::int64_t last_epoch() const {
    if (step == 0) return -1;
    return position == 0 && epoch > 0 ? epoch - 1 : epoch;
  }

  /// Sets total_steps from where the run is: steps that are done may have been larger or smaller, with
  /// another number of workers.
  void count_steps(const TrainConfig& config, const StepSampler& sampler);
  /// After the run's first `done` steps, which were as large as those to come.
  void resume_at(std::int64_t done, const StepSampler& sampler);
};

}  // namespace dtrain
