#include "training/log/run_progress.h"

#include <algorithm>

namespace dtrain {

void RunProgress::count_steps(const TrainConfig& config, const StepSampler& sampler) {
  total_steps = config.max_steps.value_or(INT64_MAX);
  if (config.epochs == INT64_MAX) return;
  const std::int64_t whole = std::max<std::int64_t>(config.epochs - epoch - 1, 0) * sampler.steps_from(0);
  const std::int64_t left = epoch < config.epochs ? whole + sampler.steps_from(position) : 0;
  total_steps = std::min(total_steps, step + left);
}

std::int64_t RunProgress::samples(std::int64_t size, const TrainConfig& config) const {
  return epoch * (config.drop_last ? size - size % config.batch.global : size) + position;
}

void RunProgress::resume_at(std::int64_t done, const StepSampler& sampler) {
  if (done == step) return;
  const std::int64_t per_epoch = sampler.steps_from(0);
  step = resumed_from = done;
  epoch = done / per_epoch;
  position = 0;
  for (std::int64_t i = 0; i < done % per_epoch; ++i) position = sampler.next(position);
}

}  // namespace dtrain
