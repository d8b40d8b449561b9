#include "training/training_data.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/error.h"

namespace dtrain {

TrainingData::TrainingData(const Recipe& recipe, const Task& task, DataShare share,
                           const std::shared_ptr<Device>& device, Log& log, SpanRecorder* spans)
    : global_batch_(recipe.batch.global) {
  const DataRequest request{.dataset = recipe.dataset, .data_dir = recipe.data_dir, .log = &log};
  Splits splits = task.open(request);
  train_ = std::move(splits.train);
  test_ = std::move(splits.test);
  if (!std::ranges::equal(train_->fields(), test_->fields())) {
    throw UsageError(fmt::format(
        "task {}: expected samples of the same fields in both splits, got {} in {} and {} in {}", task.name(),
        describe(train_->fields()), train_->name(), describe(test_->fields()), test_->name()));
  }
  sampler_ = std::make_unique<StepSampler>(StepSamplerOptions{.dataset_size = train_->size(),
                                                              .world_size = share.size,
                                                              .rank = share.rank,
                                                              .global_batch = recipe.batch.global,
                                                              .seed = recipe.seed});
  pass_size_ = sampler_->full_share() / recipe.batch.accumulate;
  loader_ = std::make_unique<Loader>(
      train_, device,
      LoaderOptions{
          .batch_size = pass_size_, .threads = recipe.loader_threads, .seed = recipe.seed, .spans = spans});
}

void TrainingData::start(std::int64_t epoch, std::int64_t position) {
  loader_->start(sampler_->order(epoch, position), epoch);
}

std::size_t TrainingData::passes_at(std::int64_t position) const noexcept {
  return static_cast<std::size_t>((sampler_->share_at(position) + pass_size_ - 1) / pass_size_);
}

bool TrainingData::full_at(std::int64_t position) const noexcept {
  return sampler_->samples_at(position) == global_batch_;
}

}  // namespace dtrain
