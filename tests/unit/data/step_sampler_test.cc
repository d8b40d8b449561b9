// The order of samples by steps: PyTorch's where ranks share evenly, and each sample exactly once whatever
// happens to the number of ranks in mid-epoch.
#include "runtime/data/step_sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "runtime/base/error.h"
#include "runtime/data/sampler.h"

namespace dtrain {
namespace {

// What `world` ranks take from `position` on, in `steps` steps at most: how often each index. Checks shares
// on the way.
std::int64_t take(std::map<std::int64_t, int>& seen, std::int64_t size, std::int64_t batch, int world,
                  std::int64_t position, std::int64_t steps) {
  std::int64_t end = position;
  for (int rank = 0; rank < world; ++rank) {
    const StepSampler sampler({size, world, rank, batch, 3});
    const auto order = sampler.order(2, position);
    std::size_t next = 0;
    end = position;
    for (std::int64_t step = 0; step < steps && end < size; ++step) {
      const std::int64_t share = sampler.share_at(end);
      EXPECT_GE(share, 1);
      EXPECT_LE(share, sampler.full_share());
      for (std::int64_t i = 0; i < share; ++i) ++seen[order.at(next++)];
      end = sampler.next(end);
    }
    EXPECT_TRUE(end < size || next == order.size());
  }
  return end;
}

TEST(StepSampler, IsPyTorchsWhereRanksShareEvenly) {
  for (const std::int64_t size : {1, 7, 100, 1000, 1001}) {
    for (const int world : {1, 2, 3, 4, 7}) {
      for (const std::int64_t each : {1, 5, 16}) {
        for (int rank = 0; rank < world; ++rank) {
          const StepSampler sampler({size, world, rank, each * world, 5});
          EXPECT_EQ(sampler.order(1), DistributedSampler({size, world, rank, 5}).order(1))
              << size << " samples, rank " << rank << " of " << world << ", " << each << " each";
          EXPECT_EQ(sampler.full_share(), each);
        }
      }
    }
  }
}

// Any change of world at any step: every sample once, and no more extra ones than the padding of the last
// step.
TEST(StepSampler, EachSampleOnceThroughChangesOfWorld) {
  int cases = 0;
  for (const std::int64_t size : {5, 48, 97, 100, 257}) {
    for (const std::int64_t batch : {7, 12, 48}) {
      for (int before = 1; before <= 5; ++before) {
        for (int after = 1; after <= 5; ++after) {
          for (std::int64_t steps = 0; steps <= (size + batch - 1) / batch; ++steps) {
            std::map<std::int64_t, int> seen;
            const std::int64_t middle = take(seen, size, batch, before, 0, steps);
            EXPECT_EQ(take(seen, size, batch, after, middle, size), size);
            std::int64_t total = 0;
            for (std::int64_t i = 0; i < size; ++i) {
              ASSERT_GE(seen[i], 1) << "sample " << i << " is missing: " << size << " samples, batch "
                                    << batch << ", " << before << " to " << after << " workers after step "
                                    << steps;
              total += seen[i];
            }
            EXPECT_LT(total - size, std::max(before, after));
            ++cases;
          }
        }
      }
    }
  }
  EXPECT_GT(cases, 3000);
}

// With a batch for each worker the global one changes as well.
TEST(StepSampler, EachSampleOnceWhenTheGlobalBatchChangesToo) {
  for (std::int64_t steps = 0; steps < 7; ++steps) {
    std::map<std::int64_t, int> seen;
    std::int64_t at = take(seen, 500, 64, 4, 0, steps);
    at = take(seen, 500, 48, 3, at, 1);
    EXPECT_EQ(take(seen, 500, 64, 4, at, 100), 500);
    for (std::int64_t i = 0; i < 500; ++i) ASSERT_GE(seen[i], 1) << i;
  }
}

TEST(StepSampler, UnevenSharesDifferByOne) {
  const StepSampler first({1000, 3, 0, 256}), last({1000, 3, 2, 256});
  EXPECT_EQ(first.full_share(), 86);
  EXPECT_EQ(last.full_share(), 85);
  EXPECT_EQ(first.samples_at(0), 256);
  EXPECT_EQ(first.samples_at(768), 232);
  EXPECT_EQ(first.steps_from(0), 4);
  EXPECT_EQ(first.steps_from(999), 1);
  EXPECT_EQ(first.samples_at(999), 3);  // filled up: nobody goes without
  EXPECT_EQ(last.share_at(999), 1);
}

TEST(StepSampler, PartsComeOneAfterTheOtherInEachStep) {
  const StepSampler both({.dataset_size = 20, .world_size = 4, .rank = 1, .global_batch = 8, .parts = 2});
  std::vector<std::int64_t> expected;
  std::vector<std::int64_t> parts[2];
  for (int rank = 1; rank < 3; ++rank)
    parts[rank - 1] =
        StepSampler({.dataset_size = 20, .world_size = 4, .rank = rank, .global_batch = 8}).order(3);
  for (const auto& [begin, end] : {std::pair{0, 2}, {2, 4}, {4, 5}}) {
    for (const auto& part : parts) expected.insert(expected.end(), part.begin() + begin, part.begin() + end);
  }
  EXPECT_EQ(both.order(3), expected);
  EXPECT_THROW(StepSampler({.dataset_size = 20, .world_size = 4, .rank = 3, .global_batch = 8, .parts = 2}),
               UsageError);
  EXPECT_THROW(StepSampler({.dataset_size = 20, .world_size = 4, .rank = 0, .global_batch = 9, .parts = 2}),
               UsageError);
}

TEST(StepSampler, LeavesOutWhatDoesNotFillAStep) {
  const StepSamplerOptions options{.dataset_size = 21, .world_size = 2, .global_batch = 8, .drop_last = true};
  const StepSampler sampler(options);
  EXPECT_EQ(sampler.steps_from(0), 2);
  EXPECT_EQ(sampler.next(0), 8);
  EXPECT_EQ(sampler.next(8), 21) << "five samples are left";
  EXPECT_EQ(sampler.first_from(8), 8);
  EXPECT_EQ(sampler.first_from(16), 21);
  EXPECT_EQ(sampler.order(0).size(), 8U);
  EXPECT_EQ(sampler.order(0, 16).size(), 0U);
  StepSamplerOptions all = options;
  all.drop_last = false;
  std::vector<std::int64_t> first = StepSampler(all).order(0);
  first.resize(8);
  EXPECT_EQ(sampler.order(0), first);
  all.drop_last = true;
  all.dataset_size = 7;
  EXPECT_THROW(StepSampler{all}, UsageError);
}

TEST(StepSampler, RefusesABatchWithoutASampleForEach) {
  EXPECT_THROW(StepSampler({10, 4, 0, 3}), UsageError);
  EXPECT_THROW(StepSampler({10, 2, 2, 4}), UsageError);
}

}  // namespace
}  // namespace dtrain
