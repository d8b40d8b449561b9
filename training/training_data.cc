#include "training/training_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

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

void check_split(const Task& task, const char* split, const std::shared_ptr<const Source>& source) {
  if (source == nullptr || source->size() < 1) {
    throw UsageError(fmt::format("task {}: expected a {} split of at least one sample, got {}", task.name(),
                                 split, source == nullptr ? "null" : source->name() + " without any"));
  }
  check_fields(*source);
}

/// "fc1.weight [120, 400]" of the first parameter of `network` that `other` has in another shape, or not at
/// all; "" where they have the same.
std::string first_difference(const Module& network, const Module& other) {
  const NamedTensors own = network.named_parameters(), others = other.named_parameters();
  for (std::size_t i = 0; i < own.size(); ++i) {
    const auto& [name, tensor] = own[i];
    if (i < others.size() && others[i].first == name && others[i].second.shape() == tensor.shape()) continue;
    return fmt::format("{} {}", name, tensor.shape().to_string());
  }
  return "";
}

// One network learns from all sizes, and is evaluated on its own.
void check_sizes(const TrainConfig& config, const Task& task, const Source& train,
                 const std::shared_ptr<Device>& device) {
  const TrainingSize& size = config.augment.size;
  if (size.from == 0) return;
  const auto build = [&](std::span<const Field> fields) {
    Generator generator(config.seed);
    return task.build(fields, generator, device);
  };
  const auto refuse = [&](int side, const std::string& got) {
    throw UsageError(
        fmt::format("--augment: expected no size= for a network that is made for one size, got "
                    "size={} with {}, {} for images of {} x {}",
                    name_of(size), task.name(), got, side, side));
  };
  const auto network = build(train.fields());
  std::set<int> checked;
  for (std::int64_t epoch = 0; epoch <= size.last; epoch = std::max<std::int64_t>(epoch, size.first) + 1) {
    if (!checked.insert(size.at(epoch)).second) continue;
    const auto seen = train.at_epoch(epoch);
    if (seen == nullptr) return;  // a task that opens data of its own
    std::string difference;
    try {
      difference = first_difference(*build(seen->fields()), *network);
    } catch (const UsageError& error) {
      refuse(size.at(epoch), fmt::format("which cannot be made ({})", error.what()));
    }
    if (!difference.empty()) refuse(size.at(epoch), "whose parameters differ: " + difference);
  }
}

}  // namespace

TrainingData::TrainingData(const TrainConfig& config, const Task& task, DataShare share,
                           const std::shared_ptr<Device>& device, Log& log, SpanRecorder* spans)
    : task_(task),
      device_(device),
      seed_(config.seed),
      global_batch_(config.batch.global),
      parts_(share.parts),
      replays_(config.like_torchvision.has_value()) {
  const DataRequest request{.dataset = config.dataset,
                            .data_dir = config.data_dir,
                            .log = &log,
                            .augment = config.augment,
                            .on_bad_sample = config.on_bad_sample,
                            .picture_cache_bytes = static_cast<std::size_t>(config.image_cache_mib) << 20};
  Splits splits = task.open(request);
  train_ = std::move(splits.train);
  test_ = std::move(splits.test);
  check_split(task, "training", train_);
  check_split(task, "test", test_);
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
  check_sizes(config, task, *train_, device);
  loading_ = {.batch_size = pass_size_,
              .threads = config.loader_threads,
              .bytes = device->type() != DeviceType::cpu,
              .pad_to_most = config.graphs == GraphUse::on,
              .seed = config.seed,
              .torch_workers = config.like_torchvision,
              .spans = spans};
  read_from(in_epoch(train_, 0));
  if (config.like_torchvision) check_like_torchvision(config, share, read_from_ == seen_);
}

void TrainingData::read_from(std::shared_ptr<const Source> train) {
  loader_ = nullptr;  // its batches' memory goes before there is more
  read_from_ = task_.for_training(train);
  seen_ = std::move(train);
  loader_ = std::make_unique<Loader>(read_from_, device_, loading_);
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
  for (const std::int64_t sample : order) {
    fed.samples.push_back(train_->place_of(sample));
    fed.files.push_back(train_->file_of(sample));
  }
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
  if (auto seen = in_epoch(train_, epoch); !std::ranges::equal(seen->fields(), seen_->fields())) {
    read_from(std::move(seen));
    ++shapes_;
  }
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

std::optional<int> TrainingData::shape_at(std::int64_t position) const noexcept {
  const bool vary = !loading_.pad_to_most &&
                    std::ranges::any_of(read_from_->fields(),
                                        [](const Field& field) { return !field.length_field.empty(); });
  return sampler_->samples_at(position) == global_batch_ && !vary ? std::optional(shapes_) : std::nullopt;
}

}  // namespace dtrain
