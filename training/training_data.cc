#include "training/training_data.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

// There a worker of PyTorch reads whole batches, and a rank's are all of one size.
void check_like_torchvision(const TrainConfig& config, const DataShare& share, bool plain) {
  const std::int64_t passes = share.size * config.batch.accumulate;
  if (plain && share.parts == 1 && config.batch.global % passes == 0) return;
  throw UsageError(fmt::format(
      "--like-torchvision: expected a global batch that divides into the batches of PyTorch's "
      "loaders, got {}",
      !plain            ? "--mixup or --cutmix, which draw differently"
      : share.parts > 1 ? "--virtual-workers"
                        : fmt::format("{} samples for {} micro-batches", config.batch.global, passes)));
}

}  // namespace

TrainingData::TrainingData(const TrainConfig& config, const Task& task, DataShare share,
                           const std::shared_ptr<Device>& device, Log& log, SpanRecorder* spans)
    : seed_(config.seed),
      global_batch_(config.batch.global),
      parts_(share.parts),
      replays_(config.like_torchvision.has_value()) {
  const DataRequest request{.dataset = config.dataset,
                            .data_dir = config.data_dir,
                            .log = &log,
                            .augment = config.augment,
                            .on_bad_sample = config.on_bad_sample};
  Splits splits = task.open(request);
  train_ = std::move(splits.train);
  test_ = std::move(splits.test);
  if (!std::ranges::equal(train_->fields(), test_->fields())) {
    throw UsageError(fmt::format(
        "task {}: expected samples of the same fields in both splits, got {} in {} and {} in {}", task.name(),
        describe(train_->fields()), train_->name(), describe(test_->fields()), test_->name()));
  }
  fingerprint_ = dtrain::fingerprint(*train_, *test_);
  sampler_ = std::make_unique<StepSampler>(StepSamplerOptions{.dataset_size = train_->size(),
                                                              .world_size = share.size,
                                                              .rank = share.rank,
                                                              .global_batch = config.batch.global,
                                                              .seed = config.seed,
                                                              .drop_last = config.drop_last,
                                                              .parts = share.parts});
  smallest_pass_ = smallest_pass(share.size, config.batch.accumulate);
  pass_size_ = sampler_->full_share() / config.batch.accumulate;
  read_from_ = task.for_training(train_);
  if (config.like_torchvision) check_like_torchvision(config, share, read_from_ == train_);
  loader_ = std::make_unique<Loader>(read_from_, device,
                                     LoaderOptions{.batch_size = pass_size_,
                                                   .threads = config.loader_threads,
                                                   .bytes = device->type() != DeviceType::cpu,
                                                   .seed = config.seed,
                                                   .torch_workers = config.like_torchvision,
                                                   .spans = spans});
}

std::optional<FedPictures> TrainingData::first_fed(const Task& task, const std::shared_ptr<Device>& device,
                                                   const Deadline& deadline) const {
  const Field& image = input_field(task, train_->fields());
  const bool is_clip = image.shape.rank() == 4;
  if (replays_ || image.dtype != DType::f32 || (image.shape.rank() != 3 && !is_clip)) return std::nullopt;
  std::vector<std::int64_t> order = sampler_->order(0);
  order.resize(static_cast<std::size_t>(
      std::min({static_cast<std::int64_t>(order.size()), pass_size_, FedPictures::kMost})));
  if (order.empty()) return std::nullopt;
  FedPictures fed{.numbers =
                      train_->pixel_numbers(static_cast<std::size_t>(&image - train_->fields().data()))};
  for (const std::int64_t sample : order) fed.samples.push_back(train_->place_of(sample));
  Loader loader(read_from_, device, {.batch_size = static_cast<std::int64_t>(order.size()), .seed = seed_});
  loader.start(std::move(order), 0);
  const auto batch = loader.next(deadline);
  const BatchTensors tensors = to_tensors(*batch, device);
  Tensor shown = task.inputs(tensors).front();
  if (is_clip) shown = shown.select(1, shown.size(1) / 2).contiguous();  // one frame in the middle
  fed.values = shown.to_vector<float>();
  fed.shape = shown.shape();
  if (const Field* label = task.predicted_field(train_->fields()); label && label->shape.rank() == 0) {
    fed.labels = tensors[label->name].to_vector<std::int64_t>();
    fed.classes = label->value_names;
  }
  return fed;
}

void TrainingData::start(std::int64_t epoch, std::int64_t position) {
  if (replays_) {
    std::vector<std::int64_t> order = sampler_->order(epoch);
    const auto left = static_cast<std::int64_t>(sampler_->order(epoch, position).size());
    const std::int64_t taken = static_cast<std::int64_t>(order.size()) - left;
    return loader_->start(std::move(order), epoch, (taken + pass_size_ - 1) / pass_size_);
  }
  if (parts_ == 1) return loader_->start(sampler_->order(epoch, position), epoch);
  std::vector<std::int64_t> ends;
  std::int64_t end = 0;
  for (std::int64_t at = sampler_->first_from(position); at < train_->size(); at = sampler_->next(at)) {
    const std::int64_t share = sampler_->share_at(at);
    for (int part = 0; part < parts_; ++part) {
      for (std::int64_t taken = 0; taken < share; taken += pass_size_)
        ends.push_back(end += std::min(pass_size_, share - taken));
    }
  }
  loader_->start(sampler_->order(epoch, position), std::move(ends), epoch);
}

std::size_t TrainingData::passes_at(std::int64_t position) const noexcept {
  const std::int64_t passes = (sampler_->share_at(position) + pass_size_ - 1) / pass_size_;
  return static_cast<std::size_t>(parts_ * passes);
}

// Shares of a step differ by one sample at most. Of those that a step is cut into passes for, the last pass
// may be smaller than the others.
std::int64_t TrainingData::smallest_pass(std::int64_t shares, std::int64_t accumulate) const {
  std::int64_t smallest = INT64_MAX;
  for (std::int64_t at = 0; at < train_->size(); at = sampler_->next(at)) {
    const std::int64_t samples = sampler_->samples_at(at);
    for (const std::int64_t share : {samples / shares, (samples + shares - 1) / shares}) {
      const std::int64_t pass = std::max<std::int64_t>(global_batch_ / shares / accumulate, 1);
      smallest = std::min({smallest, pass, share % pass == 0 ? pass : share % pass});
    }
  }
  return smallest;
}

bool TrainingData::full_at(std::int64_t position) const noexcept {
  return sampler_->samples_at(position) == global_batch_;
}

}  // namespace dtrain
