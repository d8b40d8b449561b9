// Looks for numbers that are not finite: in what is saved, in a checkpoint to resume from, and in the samples
// that training took when it met some.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>

#include "parallel/layout/saved_tensors.h"
#include "runtime/checkpoint/checkpoint_store.h"
#include "runtime/data/loader.h"
#include "runtime/nn/module.h"

namespace dtrain {

/// Used by one thread.
class FiniteCheck {
 public:
  /// `device`: where most of what is looked at lives.
  explicit FiniteCheck(std::shared_ptr<Device> device) : device_(std::move(device)) {}

  /// Buffers of `network`, which is new, that are not finite are meant to be so, as a mask's minus infinity.
  void take_new(const Module& network);

  /// The name of a tensor that is not finite; nothing where all are. One pass over memory; waits for the
  /// device.
  std::optional<std::string> find(const RankState& parts) const;
  /// The same of a checkpoint, as a CheckpointTest; reads all of it.
  std::optional<std::string> find(const Checkpoint& checkpoint) const;

 private:
  std::optional<std::string> find(std::span<const NamedShard> parts) const;
  std::optional<std::string> find(const TensorFiles& files) const;

  std::shared_ptr<Device> device_;
  std::set<std::string> meant_;
};

/// A sample with a value that is not finite.
struct BadSample {
  std::int64_t index = 0;  ///< in its source
  std::size_t field = 0;   ///< number of the field
  double value = 0;
};

/// The first of the samples `indices` of `source` that has one, as training reads them in `epoch` with
/// `seed`; each wait for a sample is bounded by `patience`.
std::optional<BadSample> find_bad_sample(const std::shared_ptr<const Source>& source,
                                         std::vector<std::int64_t> indices, std::int64_t epoch,
                                         std::uint64_t seed, Duration patience);

}  // namespace dtrain
