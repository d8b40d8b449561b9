// Which samples a rank takes in each optimizer step, when the number of ranks may change in the middle of an
// epoch. The epoch is one permutation, a step takes the next global batch of it, and the ranks share that out
// among them: so the position in the epoch is a number of samples, and means the same for any number of
// ranks.
#pragma once

#include <cstdint>
#include <vector>

namespace dtrain {

struct StepSamplerOptions {
  std::int64_t dataset_size = 0;
  int world_size = 1;
  int rank = 0;
  std::int64_t global_batch = 1;  ///< samples of one step over all ranks; at least world_size
  std::uint64_t seed = 0;
  bool shuffle = true;
  bool drop_last = false;  ///< samples that are left where they do not fill a step are left out of the epoch
  int parts = 1;           ///< order() gives those of so many consecutive ranks, from `rank`
};

/// Step k of an epoch takes places [k·B, (k+1)·B) of the permutation and rank r those at r, r + W, r + 2W, …
/// from the window's begin. Where W divides B this is DistributedSampler, index for index, padding included:
/// the last window is filled up to a multiple of W with the permutation's head. Where it does not, ranks
/// differ by one sample and only a last window of less than W samples is filled up (to W).
class StepSampler {
 public:
  /// Throws UsageError as DistributedSampler does, for a global batch below the world size, where drop_last
  /// would leave everything out, and for several parts whose number of samples would differ: a global batch
  /// that is no multiple of the world size.
  explicit StepSampler(const StepSamplerOptions& options);

  /// Steps left in an epoch of which `position` samples were taken.
  std::int64_t steps_from(std::int64_t position) const noexcept;
  /// Samples, over all ranks, of the step that begins at `position` < dataset_size; what was filled up
  /// counts.
  std::int64_t samples_at(std::int64_t position) const noexcept;
  /// This rank's share of them, of one part: at least 1.
  std::int64_t share_at(std::int64_t position) const noexcept;
  /// This rank's share of a full step.
  std::int64_t full_share() const noexcept;
  /// Where the step after the one at `position` begins; dataset_size at the end.
  std::int64_t next(std::int64_t position) const noexcept;
  /// `position`, or dataset_size where no step begins there any more.
  std::int64_t first_from(std::int64_t position) const noexcept;

  /// This rank's indices from `position` to the end of `epoch`, step after step; in a step part after part.
  /// Costs as DistributedSampler::order.
  std::vector<std::int64_t> order(std::int64_t epoch, std::int64_t position = 0) const;

 private:
  StepSamplerOptions options_;
};

}  // namespace dtrain
