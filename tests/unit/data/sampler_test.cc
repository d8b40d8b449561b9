// What must hold for any sampler, at sizes where it is easy to get wrong; exact orders are in
// tests/parity/data.
#include "runtime/data/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/base/random.h"

namespace dtrain {
namespace {

// The padded list of PyTorch's source, written the long way.
std::vector<std::int64_t> reference(const SamplerOptions& options, std::int64_t epoch) {
  std::vector<std::int64_t> list =
      Generator(options.seed + static_cast<std::uint64_t>(epoch)).permutation(options.dataset_size);
  if (!options.shuffle) std::sort(list.begin(), list.end());
  const auto n = list.size(), world = static_cast<std::size_t>(options.world_size);
  if (options.drop_last) {
    list.resize(n / world * world);
  } else {
    while (list.size() % world != 0) list.push_back(list[list.size() - n]);
  }
  std::vector<std::int64_t> mine;
  for (auto i = static_cast<std::size_t>(options.rank); i < list.size(); i += world) mine.push_back(list[i]);
  return mine;
}

TEST(DistributedSampler, IsThePaddedListTakenInTurn) {
  for (const std::int64_t size : {1, 2, 3, 10, 64, 101}) {
    for (const int world : {1, 2, 3, 4, 7, 64, 300}) {
      for (int mode = 0; mode < 4; ++mode) {
        for (const int rank : {0, world / 2, world - 1}) {
          const SamplerOptions options{size, world, rank, 5, (mode & 1) != 0, (mode & 2) != 0};
          const DistributedSampler sampler(options);
          EXPECT_EQ(sampler.order(3), reference(options, 3))
              << size << " " << world << " " << rank << " " << mode;
          EXPECT_EQ(static_cast<std::int64_t>(sampler.order(3).size()), sampler.samples_per_rank());
        }
      }
    }
  }
}

TEST(DistributedSampler, EmptyDatasetGivesNothing) {
  EXPECT_TRUE(DistributedSampler({0, 3, 1}).order(0).empty());
}

TEST(DistributedSampler, SeedWrapsAsPyTorchsDoes) {
  const std::uint64_t wide = (std::uint64_t{1} << 32) + 9;
  EXPECT_EQ(DistributedSampler({50, 1, 0, wide}).order(0), DistributedSampler({50, 1, 0, 9}).order(0));
  EXPECT_EQ(DistributedSampler({50, 1, 0, ~std::uint64_t{0}}).order(10),
            DistributedSampler({50, 1, 0, 9}).order(0));
}

TEST(DistributedSampler, RefusesRanksOutsideTheWorld) {
  EXPECT_THROW(DistributedSampler({10, 0, 0}), UsageError);
  EXPECT_THROW(DistributedSampler({10, 2, 2}), UsageError);
  EXPECT_THROW(DistributedSampler({10, 2, -1}), UsageError);
  EXPECT_THROW(DistributedSampler({-1, 2, 0}), UsageError);
  EXPECT_THROW(EvalSampler(10, 2, 2), UsageError);
}

TEST(EvalSampler, CountsEverySampleOnce) {
  for (const std::int64_t size : {0, 1, 2, 7, 10, 10000}) {
    for (const int world : {1, 2, 3, 4, 7, 64}) {
      std::vector<std::int64_t> all;
      std::int64_t least = size, most = 0;
      for (int rank = 0; rank < world; ++rank) {
        const auto mine = EvalSampler(size, world, rank).order();
        all.insert(all.end(), mine.begin(), mine.end());
        least = std::min<std::int64_t>(least, static_cast<std::int64_t>(mine.size()));
        most = std::max<std::int64_t>(most, static_cast<std::int64_t>(mine.size()));
      }
      ASSERT_EQ(static_cast<std::int64_t>(all.size()), size) << world;
      for (std::int64_t i = 0; i < size; ++i) ASSERT_EQ(all[static_cast<std::size_t>(i)], i);
      EXPECT_LE(most - least, 1) << size << " " << world;
    }
  }
}

}  // namespace
}  // namespace dtrain
