// Philox against its authors' published answers, and what is drawn from it: a function of the key alone.
#include "runtime/base/keyed_random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

namespace dtrain {
namespace {

using Block = std::array<std::uint32_t, 4>;

// kat_vectors of Random123, "philox4x32 10".
TEST(KeyedGenerator, BlocksAreThePublishedOnes) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({~0U, ~0U, ~0U, ~0U}, {~0U, ~0U}),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(KeyedGenerator, DrawsItsBlocksInOrder) {
  constexpr std::uint64_t kSeed = 0x299f31d0a4093822, kEpoch = 0x03707344, kIndex = 0x13198a2e85a308d3;
  KeyedGenerator generator(kSeed, kEpoch, kIndex);
  for (std::uint32_t number = 0; number < 3; ++number) {
    const Block block = philox4x32({number, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0});
    for (const std::uint32_t draw : block) EXPECT_EQ(generator.next32(), draw);
  }
}

TEST(KeyedGenerator, EachPartOfTheKeyMatters) {
  std::set<std::uint64_t> first;
  for (std::uint64_t seed : {0, 1, 7})
    for (std::uint64_t epoch : {0, 1, 7})
      for (std::uint64_t index : {0, 1, 7}) first.insert(KeyedGenerator(seed, epoch, index).next64());
  EXPECT_EQ(first.size(), 27U);
  EXPECT_EQ(KeyedGenerator(3, 4, 5).next64(), KeyedGenerator(3, 4, 5).next64());
  EXPECT_NE(KeyedGenerator(1ULL << 32, 0, 0).next64(), KeyedGenerator(0, 0, 0).next64());
  EXPECT_NE(KeyedGenerator(0, 0, 1ULL << 32).next64(), KeyedGenerator(0, 0, 0).next64());
}

TEST(KeyedGenerator, DrawsAreUniform) {
  constexpr int kDraws = 60000;
  constexpr std::uint64_t kSides = 6;
  std::vector<int> seen(kSides, 0);
  double sum = 0;
  for (std::uint64_t index = 0; index < kDraws; ++index) {  // across keys, as augmentation draws
    KeyedGenerator generator(1, 2, index);
    const std::uint64_t side = generator.below(kSides);
    ASSERT_LT(side, kSides);
    ++seen[side];
    const float value = generator.uniform();
    ASSERT_TRUE(value >= 0 && value < 1);
    sum += value;
  }
  // Six standard deviations of a binomial count and of a mean.
  for (const int count : seen) EXPECT_NEAR(count, kDraws / 6.0, 6 * 92);
  EXPECT_NEAR(sum / kDraws, 0.5, 6 * 0.2887 / 245);
}

TEST(KeyedGenerator, BelowCoversItsRangeAndNoMore) {
  KeyedGenerator generator(0, 0, 0);
  EXPECT_EQ(generator.below(1), 0U);
  const std::uint64_t most = (std::uint64_t{1} << 63) + 1;  // half of all draws would be biased
  bool upper = false;
  for (int i = 0; i < 200; ++i) {
    const std::uint64_t value = generator.below(most);
    ASSERT_LT(value, most);
    upper = upper || value > most / 2;
  }
  EXPECT_TRUE(upper);
}

TEST(KeyedGenerator, ServesTheStandardLibrary) {
  std::vector<int> order(100);
  std::iota(order.begin(), order.end(), 0);
  KeyedGenerator generator(1, 1, 1);
  std::shuffle(order.begin(), order.end(), generator);
  EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
}

}  // namespace
}  // namespace dtrain
