#include "runtime/data/step_sampler.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/base/random.h"
#include "runtime/data/sampler.h"

namespace dtrain {

StepSampler::StepSampler(const StepSamplerOptions& options) : options_(options) {
  // For its checks.
  DistributedSampler(
      {.dataset_size = options.dataset_size, .world_size = options.world_size, .rank = options.rank});
  if (options.global_batch < options.world_size) {
    throw UsageError(
        fmt::format("sampler: expected a global batch of at least one sample for each of {} workers, got {}",
                    options.world_size, options.global_batch));
  }
  if (options.drop_last && options.dataset_size < options.global_batch) {
    throw UsageError(fmt::format(
        "sampler: expected samples for at least one step of {} where the last ones are dropped, got {}",
        options.global_batch, options.dataset_size));
  }
  if (options.parts < 1 || options.parts > options.world_size - options.rank ||
      (options.parts > 1 && options.global_batch % options.world_size != 0)) {
    throw UsageError(
        fmt::format("sampler: expected a global batch that is a multiple of {} parts, and no more parts than "
                    "there are, got a global batch of {} and {} parts from number {}",
                    options.world_size, options.global_batch, options.parts, options.rank));
  }
}

std::int64_t StepSampler::steps_from(std::int64_t position) const noexcept {
  const std::int64_t left = std::max<std::int64_t>(options_.dataset_size - position, 0);
  return (left + (options_.drop_last ? 0 : options_.global_batch - 1)) / options_.global_batch;
}

std::int64_t StepSampler::samples_at(std::int64_t position) const noexcept {
  const std::int64_t world = options_.world_size;
  const std::int64_t samples = std::min(options_.global_batch, options_.dataset_size - position);
  if (options_.global_batch % world == 0) return (samples + world - 1) / world * world;
  return std::max(samples, world);
}

std::int64_t StepSampler::share_at(std::int64_t position) const noexcept {
  return (samples_at(position) - options_.rank + options_.world_size - 1) / options_.world_size;
}

std::int64_t StepSampler::full_share() const noexcept {
  return (options_.global_batch - options_.rank + options_.world_size - 1) / options_.world_size;
}

std::int64_t StepSampler::next(std::int64_t position) const noexcept {
  return first_from(std::min(position + options_.global_batch, options_.dataset_size));
}

std::int64_t StepSampler::first_from(std::int64_t position) const noexcept {
  return steps_from(position) > 0 ? position : options_.dataset_size;
}

std::vector<std::int64_t> StepSampler::order(std::int64_t epoch, std::int64_t position) const {
  const std::vector<std::int64_t> permutation =
      DistributedSampler(
          {.dataset_size = options_.dataset_size, .seed = options_.seed, .shuffle = options_.shuffle})
          .order(epoch);
  std::vector<std::int64_t> mine;
  mine.reserve(static_cast<std::size_t>(options_.dataset_size / options_.world_size + 1));
  for (position = first_from(position); position < options_.dataset_size; position = next(position)) {
    const std::int64_t end = position + samples_at(position);
    for (int rank = options_.rank; rank < options_.rank + options_.parts; ++rank) {
      for (std::int64_t place = position + rank; place < end; place += options_.world_size)
        mine.push_back(permutation[static_cast<std::size_t>(place % options_.dataset_size)]);
    }
  }
  return mine;
}

}  // namespace dtrain
