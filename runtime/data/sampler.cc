// PyTorch pads its permutation with its own beginning, repeated as often as needed: element i of the padded
// list is element i mod n of the permutation. No padded list is built here.
#include "runtime/data/sampler.h"

#include <fmt/format.h>

#include <numeric>

#include "runtime/base/error.h"
#include "runtime/base/random.h"

namespace dtrain {
namespace {

void check_ranks(std::int64_t dataset_size, int world_size, int rank) {
  if (dataset_size < 0)
    throw UsageError(fmt::format("sampler: expected a dataset size of at least 0, got {}", dataset_size));
  if (world_size < 1)
    throw UsageError(fmt::format("sampler: expected a world size of at least 1, got {}", world_size));
  if (rank < 0 || rank >= world_size) {
    throw UsageError(fmt::format("sampler: expected a rank from 0 to {}, got {}", world_size - 1, rank));
  }
}

}  // namespace

DistributedSampler::DistributedSampler(const SamplerOptions& options) : options_(options) {
  check_ranks(options.dataset_size, options.world_size, options.rank);
  const std::int64_t whole = options.dataset_size / options.world_size;
  const bool uneven = options.dataset_size % options.world_size != 0;
  samples_per_rank_ = whole + (uneven && !options.drop_last ? 1 : 0);
}

std::vector<std::int64_t> DistributedSampler::order(std::int64_t epoch) const {
  std::vector<std::int64_t> permutation;
  if (options_.shuffle) {
    Generator generator(options_.seed + static_cast<std::uint64_t>(epoch));
    permutation = generator.permutation(options_.dataset_size);
  }
  std::vector<std::int64_t> mine(static_cast<std::size_t>(samples_per_rank_));
  for (std::int64_t i = 0; i < samples_per_rank_; ++i) {
    const std::int64_t place = (options_.rank + i * options_.world_size) % options_.dataset_size;
    mine[static_cast<std::size_t>(i)] =
        options_.shuffle ? permutation[static_cast<std::size_t>(place)] : place;
  }
  return mine;
}

EvalSampler::EvalSampler(std::int64_t dataset_size, int world_size, int rank) {
  check_ranks(dataset_size, world_size, rank);
  const std::int64_t whole = dataset_size / world_size, extra = dataset_size % world_size;
  begin_ = whole * rank + std::min<std::int64_t>(rank, extra);
  end_ = begin_ + whole + (rank < extra ? 1 : 0);
}

std::vector<std::int64_t> EvalSampler::order() const {
  std::vector<std::int64_t> mine(static_cast<std::size_t>(end_ - begin_));
  std::iota(mine.begin(), mine.end(), begin_);
  return mine;
}

}  // namespace dtrain
