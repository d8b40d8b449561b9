// Which rank sees which sample, in which order. Both samplers are plain functions of their options and the
// epoch, so a run can be resumed anywhere: take the same order and skip what was done.
#pragma once

#include <cstdint>
#include <vector>

namespace dtrain {

struct SamplerOptions {
  std::int64_t dataset_size = 0;
  int world_size = 1;
  int rank = 0;
  std::uint64_t seed = 0;
  bool shuffle = true;
  bool drop_last = false;  ///< cut the permutation to a multiple of world_size instead of padding it
};

/// torch.utils.data.DistributedSampler, index for index.
class DistributedSampler {
 public:
  /// Throws UsageError for a negative size, a world below 1 or a rank outside it.
  explicit DistributedSampler(const SamplerOptions& options);

  /// Indices each rank gets in an epoch; the same on every rank.
  std::int64_t samples_per_rank() const noexcept { return samples_per_rank_; }

  /// This rank's indices of `epoch` (from 0), samples_per_rank() of them. O(dataset_size) with shuffling (0.3
  /// ms for 60,000). Throws UsageError where PyTorch would use another permutation (2^32 / 20 samples and
  /// more).
  std::vector<std::int64_t> order(std::int64_t epoch) const;

 private:
  SamplerOptions options_;
  std::int64_t samples_per_rank_;
};

/// For evaluation: every sample exactly once over all ranks, in consecutive runs whose lengths differ by one
/// at most (so a rank may get none). No padding: sums over ranks are sums over the dataset.
class EvalSampler {
 public:
  /// Throws UsageError as DistributedSampler does.
  EvalSampler(std::int64_t dataset_size, int world_size, int rank);

  std::int64_t begin() const noexcept { return begin_; }
  std::int64_t end() const noexcept { return end_; }
  /// begin(), …, end() - 1.
  std::vector<std::int64_t> order() const;

 private:
  std::int64_t begin_, end_;
};

}  // namespace dtrain
