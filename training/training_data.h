// What one run trains and is evaluated on: the task's two splits, which samples this rank takes in each step,
// and the loader that reads them ahead.
#pragma once

#include <memory>
#include <optional>

#include "parallel/strategy.h"
#include "runtime/data/fingerprint.h"
#include "runtime/data/loader.h"
#include "runtime/data/step_sampler.h"
#include "training/log/pictures.h"
#include "training/options/train_config.h"
#include "training/task.h"

namespace dtrain {

/// Used by one thread. A position is a number of samples of the epoch that all ranks together have taken.
class TrainingData {
 public:
  /// Opens both splits. `spans` is borrowed and may be null. Throws as Task::open, and UsageError when the
  /// two splits' samples are made of different fields, and where images are of other sizes in training than
  /// in evaluation (Source::at_epoch) for a network that is made for one size.
  TrainingData(const TrainConfig& config, const Task& task, DataShare share,
               const std::shared_ptr<Device>& device, Log& log, SpanRecorder* spans);

  /// With the fields that the network is made for.
  const Source& train() const noexcept { return *train_; }
  const std::shared_ptr<const Source>& shared_train() const noexcept { return train_; }
  const std::shared_ptr<const Source>& test() const noexcept { return test_; }
  /// Of both splits.
  const DataFingerprint& fingerprint() const noexcept { return fingerprint_; }
  const StepSampler& sampler() const noexcept { return *sampler_; }

  /// From now on next() gives the batches of `epoch` from `position` on.
  void start(std::int64_t epoch, std::int64_t position);
  /// This rank's next pass. Throws as Loader::next.
  Batch next(const Deadline& deadline) { return loader_->next(deadline).value(); }

  /// The first pictures of this rank's first pass as the network sees them, augmented and mixed, of a clip
  /// one in its middle; at most FedPictures::kMost. Nothing if its inputs are no pictures, or with
  /// --like-torchvision, where reading twice would change the draws. Throws as Loader::next.
  std::optional<FedPictures> first_fed(const Task& task, const std::shared_ptr<Device>& device,
                                       const Deadline& deadline) const;

  /// Micro-batches of this rank in the step that begins at `position`.
  std::size_t passes_at(std::int64_t position) const noexcept;
  /// Samples of the smallest pass of an epoch, of any rank; the same on all of them.
  std::int64_t smallest_pass() const noexcept { return smallest_pass_; }
  /// How many other shapes the epochs that were started before had, where the step at `position` has as many
  /// samples as most and these have no lengths of their own; else nothing. Shapes are the same on all ranks.
  std::optional<int> shape_at(std::int64_t position) const noexcept;

 private:
  /// From now on the loader reads `train`, which is train_ in some epoch.
  void read_from(std::shared_ptr<const Source> train);
  std::int64_t smallest_pass(std::int64_t shares, std::int64_t accumulate) const;

  const Task& task_;
  std::shared_ptr<Device> device_;
  std::shared_ptr<const Source> train_, test_;
  std::shared_ptr<const Source> seen_;       ///< train_ as it is in this epoch
  std::shared_ptr<const Source> read_from_;  ///< that, with the task's own fields
  DataFingerprint fingerprint_;
  std::unique_ptr<StepSampler> sampler_;
  LoaderOptions loading_;
  std::unique_ptr<Loader> loader_;
  int shapes_ = 0;  ///< that there were before
  std::uint64_t seed_;
  std::int64_t global_batch_, pass_size_, smallest_pass_ = 0;
  int parts_;     ///< shares of this rank; a pass holds samples of one
  bool replays_;  ///< PyTorch's draws: an epoch is read from its beginning
};

}  // namespace dtrain
