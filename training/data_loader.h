// Batches of a source in a range-based for: torch.utils.data.DataLoader with its DistributedSampler.
#pragma once

#include <chrono>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>

#include "runtime/data/loader.h"
#include "runtime/data/sampler.h"
#include "runtime/tensor/defaults.h"
#include "training/batch_tensors.h"

namespace dtrain {

struct DataLoaderOptions {
  std::int64_t batch_size = 1;
  bool shuffle = false;  ///< in another order each epoch, a function of `seed` and the epoch
  bool drop_last = false;
  int threads = 0;               ///< that read ahead (num_workers of torch); 0: the caller's
  std::uint64_t seed = 0;        ///< of the order, and of the generators that sources read with
  int world_size = 1, rank = 0;  ///< of workers that share the samples, as DistributedSampler shares them
  Duration patience = std::chrono::hours(1);  ///< longest wait for a batch
};

/// Each range-based for is an epoch, the first one number 0. A batch is valid until the next one is asked
/// for. Used by one thread, for one loop at a time: the outer of two loops throws UsageError. What a source
/// throws while it is read leaves the loop, TimeoutError after `patience`.
///
///     DataLoader batches(splits.train, {.batch_size = 256, .shuffle = true}, device);
///     for (int epoch = 0; epoch < 10; ++epoch)
///       for (const BatchTensors& batch : batches) train_step(batch["image"], batch["label"]);
class DataLoader {
 public:
  /// Throws UsageError for no source, a batch size below 1 and a rank outside the world.
  DataLoader(std::shared_ptr<const Source> source, const DataLoaderOptions& options,
             std::shared_ptr<Device> device = default_device());
  ~DataLoader();
  DataLoader(const DataLoader&) = delete;
  DataLoader& operator=(const DataLoader&) = delete;

  class Iterator {
   public:
    using value_type = BatchTensors;
    using difference_type = std::ptrdiff_t;
    Iterator(DataLoader& loader, std::int64_t started) : loader_(&loader), started_(started) {}
    const BatchTensors& operator*() const { return loader_->tensors_; }
    Iterator& operator++() {
      loader_->advance(started_);
      return *this;
    }
    void operator++(int) { loader_->advance(started_); }
    bool operator==(std::default_sentinel_t /*end*/) const { return !loader_->batch_; }

   private:
    DataLoader* loader_;
    std::int64_t started_;
  };
  /// Starts the next epoch.
  Iterator begin();
  std::default_sentinel_t end() const noexcept { return {}; }

  /// Batches of an epoch.
  std::int64_t size() const noexcept;
  /// The next epoch's number, for a run that is resumed.
  void set_epoch(std::int64_t epoch) noexcept { epoch_ = epoch; }

 private:
  void advance(std::int64_t started);
  void release();

  std::shared_ptr<Device> device_;
  DataLoaderOptions options_;
  DistributedSampler sampler_;
  Loader loader_;
  std::int64_t epoch_ = 0, started_ = 0;  ///< started_: loops, of which the last one has the batches
  std::optional<Batch> batch_, before_;   ///< before_: a device that runs ahead may still read it
  std::unique_ptr<Event> copied_;         ///< past: it no longer does
  BatchTensors tensors_;
};

}  // namespace dtrain
