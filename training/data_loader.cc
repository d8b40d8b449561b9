#include "training/data_loader.h"

#include <exception>
#include <utility>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

SamplerOptions sampling(const std::shared_ptr<const Source>& source, const DataLoaderOptions& options) {
  if (source == nullptr) throw UsageError("data loader: expected a source, got null");
  return {.dataset_size = source->size(),
          .world_size = options.world_size,
          .rank = options.rank,
          .seed = options.seed,
          .shuffle = options.shuffle};
}

LoaderOptions loading(const DataLoaderOptions& options) {
  return {.batch_size = options.batch_size,
          .threads = options.threads,
          .drop_last = options.drop_last,
          .seed = options.seed};
}

}  // namespace

DataLoader::DataLoader(std::shared_ptr<const Source> source, const DataLoaderOptions& options,
                       std::shared_ptr<Device> device)
    : device_(std::move(device)),
      options_(options),
      sampler_(sampling(source, options)),
      loader_(std::move(source), device_, loading(options)) {}

DataLoader::~DataLoader() {
  try {
    release();
  } catch (const std::exception&) {  // the device is broken, as its next user hears
  }
}

std::int64_t DataLoader::size() const noexcept {
  const std::int64_t samples = sampler_.samples_per_rank(), each = options_.batch_size;
  return options_.drop_last ? samples / each : (samples + each - 1) / each;
}

DataLoader::Iterator DataLoader::begin() {
  release();
  loader_.start(sampler_.order(epoch_), epoch_);
  ++epoch_;
  ++started_;
  advance(started_);
  return Iterator(*this, started_);
}

// Two batches at most are held, so that a device that runs ahead is waited for a batch later.
void DataLoader::advance(std::int64_t started) {
  if (started != started_) {
    throw UsageError(
        "data loader: expected one loop at a time, got a second one that began inside this one; make a "
        "DataLoader for each");
  }
  if (batch_ && device_->runs_ahead()) {
    if (before_ && !copied_->done()) device_->compute_stream().synchronize();
    if (!copied_) copied_ = device_->make_event();
    copied_->record(device_->compute_stream());
    before_ = std::move(batch_);
  }
  tensors_ = {};
  batch_ = loader_.next(Deadline::after(options_.patience));
  if (batch_) tensors_ = to_tensors(*batch_, device_);
}

void DataLoader::release() {
  if ((batch_ || before_) && device_->runs_ahead()) device_->compute_stream().synchronize();
  tensors_ = {};
  batch_.reset();
  before_.reset();
}

}  // namespace dtrain
