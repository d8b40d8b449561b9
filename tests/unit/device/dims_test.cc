// Shapes whose numbers leave the range of 64 bits: no elements, or nothing that memory could hold.
#include "runtime/device/dims.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace dtrain {
namespace {

constexpr std::int64_t kHuge = std::int64_t{1} << 62;

TEST(Dims, ProductsBeyondTheRangeAreTheLargestNumber) {
  EXPECT_EQ((Dims{0, kHuge, kHuge}).product(), 0);
  EXPECT_EQ((Dims{kHuge, kHuge, 0}).product(), 0);
  EXPECT_EQ((Dims{kHuge, kHuge}).product(), INT64_MAX);
  EXPECT_EQ((Dims{3, 4, 5}).product(), 60);
  EXPECT_EQ(Dims{}.product(), 1);
}

TEST(Dims, SoAreStrides) {
  EXPECT_EQ(contiguous_strides({0, kHuge, kHuge}), (Dims{INT64_MAX, kHuge, 1}));
  EXPECT_EQ(contiguous_strides({2, 0, 3}), (Dims{3, 3, 1}));
  EXPECT_EQ(channels_last_strides({0, kHuge, 4, 4}), (Dims{INT64_MAX, 1, INT64_MAX, kHuge}));
}

}  // namespace
}  // namespace dtrain
