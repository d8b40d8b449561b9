// Parts of tensors against counting index by index.
#include "runtime/checkpoint/tensor_shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "runtime/base/error.h"
#include "tests/unit/checkpoint/cuts.h"

namespace dtrain {
namespace {

using test::values_of;

std::vector<std::int64_t> positions(const TensorShard& part) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(part.shape.product()));
  std::iota(all.begin(), all.end(), std::int64_t{0});
  return values_of(part, all);
}

TensorShard random_part(const Dims& shape, std::mt19937& random) {
  const auto below = [&](std::int64_t limit) { return static_cast<std::int64_t>(random() % (limit + 1U)); };
  TensorShard part = TensorShard::whole(shape);
  for (int d = 0; d < shape.rank(); ++d) {
    if (random() % 3 == 0) continue;  // some dimensions stay whole
    const std::int64_t a = below(shape[d]), b = below(shape[d]);
    part = part.sliced(d, std::min(a, b), std::max(a, b));
  }
  if (random() % 2 == 0) return part;
  const std::int64_t a = below(part.count), b = below(part.count);
  return part.range(std::min(a, b), std::max(a, b) - std::min(a, b));
}

TEST(TensorShard, SharedRunsAreWhatCountingFinds) {
  std::mt19937 random(11);
  int shared_parts = 0;
  for (const Dims& shape :
       {Dims{}, Dims{1}, Dims{7}, Dims{4, 6}, Dims{3, 1, 5}, Dims{2, 3, 4, 2}, Dims{0, 3}}) {
    for (int round = 0; round < 300; ++round) {
      const TensorShard a = random_part(shape, random), b = random_part(shape, random);
      const auto in_a = positions(a), in_b = positions(b);
      ASSERT_EQ(static_cast<std::int64_t>(in_a.size()), a.count);
      std::vector<std::int64_t> expected, found;
      std::ranges::set_intersection(in_a, in_b, std::back_inserter(expected));
      for_each_shared_run(a, b, [&](const SharedRun& run) {
        for (std::int64_t i = 0; i < run.count; ++i) {
          found.push_back(in_a.at(static_cast<std::size_t>(run.in_a + i)));
          EXPECT_EQ(found.back(), in_b.at(static_cast<std::size_t>(run.in_b + i)));
        }
        return true;
      });
      EXPECT_EQ(found, expected) << a.to_string() << " and " << b.to_string() << " of " << shape.to_string();
      EXPECT_EQ(overlap(a, b), !expected.empty());
      shared_parts += expected.empty() ? 0 : 1;
    }
  }
  EXPECT_GT(shared_parts, 300);
}

TEST(TensorShard, NeighboursAreOneRun) {
  int runs = 0;
  for_each_shared_run(TensorShard::whole({4, 5, 6}), TensorShard::slice({4, 5, 6}, 0, 1, 3),
                      [&](const SharedRun& run) {
                        EXPECT_EQ(run.in_a, 30);
                        EXPECT_EQ(run.count, 60);
                        ++runs;
                        return true;
                      });
  EXPECT_EQ(runs, 1) << "whole rows lie side by side";
}

TEST(TensorShard, RefusesWhatIsOutside) {
  const Dims shape{4, 6};
  EXPECT_THROW(TensorShard::elements(shape, -1, 2), UsageError);
  EXPECT_THROW(TensorShard::elements(shape, 20, 5), UsageError);
  EXPECT_THROW(TensorShard::slice(shape, 2, 0, 1), UsageError);
  EXPECT_THROW(TensorShard::slice(shape, 0, 3, 5), UsageError);
  EXPECT_THROW(TensorShard::slice(shape, 0, 2, 1), UsageError);
  EXPECT_THROW(TensorShard::slice(shape, 0, 0, 2).sliced(0, 1, 3), UsageError);
  EXPECT_THROW(TensorShard::elements(shape, 0, 5).sliced(0, 0, 1), UsageError);
  EXPECT_THROW(TensorShard::slice(shape, 0, 0, 2).range(10, 3), UsageError);
  TensorShard forged = TensorShard::whole(shape);
  forged.extent = {4, std::numeric_limits<std::int64_t>::max()};
  EXPECT_THROW(forged.check("x"), UsageError);
  forged = TensorShard::whole(shape);
  forged.count = std::numeric_limits<std::int64_t>::max();
  EXPECT_THROW(forged.check("x"), UsageError);
}

TEST(TensorShard, SaysWhatItIs) {
  const TensorShard rows = TensorShard::slice({4, 6}, 0, 1, 3);
  EXPECT_EQ(rows.to_string(), "[1:3, 0:6]");
  EXPECT_EQ(rows.range(2, 5).to_string(), "[1:3, 0:6] elements 2:7");
  EXPECT_EQ(rows.range(2, 5).range(1, 2).to_string(), "[1:3, 0:6] elements 3:5");
  EXPECT_EQ(rows.held_shape(), (Dims{2, 6}));
  EXPECT_EQ(rows.range(2, 5).held_shape(), Dims{5});
  EXPECT_TRUE(TensorShard::elements({4, 6}, 0, 24).is_whole());
}

}  // namespace
}  // namespace dtrain
