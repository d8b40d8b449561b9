// The generator against numbers PyTorch drew (tests/parity holds the full set).
#include "runtime/base/random.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

TEST(Generator, PermutationIsPyTorchs) {
  EXPECT_EQ(Generator(0).permutation(10), (std::vector<std::int64_t>{4, 1, 7, 5, 3, 9, 0, 8, 6, 2}));
  EXPECT_EQ(Generator(1).permutation(10), (std::vector<std::int64_t>{5, 6, 1, 2, 0, 8, 9, 3, 7, 4}));
  EXPECT_TRUE(Generator(1).permutation(0).empty());
}

TEST(Generator, SeedUsesLower32Bits) {
  EXPECT_EQ(Generator(5).next32(), Generator((std::uint64_t{1} << 32) + 5).next32());
}

TEST(Generator, UniformIsPyTorchs) {
  std::vector<float> values(2);
  Generator(0).uniform(values, 0.0F, 1.0F);
  EXPECT_EQ(values[0], 0.49625658988952637F);
  EXPECT_EQ(values[1], 0.7682217955589294F);
}

// The first weights of torch.nn.Conv2d(1, 20, 3) under torch.manual_seed(0): rounding the product on its own
// would change the last bit of both.
TEST(Generator, UniformRoundsOnce) {
  std::vector<float> values(2);
  const float bound = 0.33333333333333337F;
  Generator(0).uniform(values, -bound, bound);
  EXPECT_EQ(values[0], -0.0024956068955361843F);
  EXPECT_EQ(values[1], 0.17881453037261963F);
}

TEST(Generator, StateContinuesTheStream) {
  Generator first(3);
  for (int i = 0; i < 1000; ++i) first.next32();
  Generator second = Generator::restore(first.state());
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(first.next32(), second.next32());
  EXPECT_THROW(Generator::restore("nonsense"), UsageError);
}

// Normal numbers come in pairs; the second one may be waiting when the state is taken.
TEST(Generator, StateKeepsTheWaitingNormalNumber) {
  Generator first(3);
  std::vector<double> odd(5), rest(3), again(3);
  first.normal(odd, 0.0, 1.0);
  Generator second = Generator::restore(first.state());
  first.normal(rest, 0.0, 1.0);
  second.normal(again, 0.0, 1.0);
  EXPECT_EQ(rest, again);
  EXPECT_THROW(Generator::restore(Generator(1).state() + " 7"), UsageError);
  EXPECT_THROW(Generator::restore(Generator(1).state() + " normal"), UsageError);
}

TEST(Generator, RefusesSizesItCannotMatch) {
  EXPECT_THROW(Generator(0).permutation(-1), UsageError);
  EXPECT_THROW(Generator(0).permutation(214748365), UsageError);
}

}  // namespace
}  // namespace dtrain
