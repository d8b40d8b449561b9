// Pooling where the table of operations (tests/operations) does not look: without indices, NaN, and what is
// refused.
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "runtime/base/error.h"
#include "tests/unit/device/array.h"

namespace dtrain {
namespace {

using test::Array;
using test::Layout;

TEST(PoolingEdges, MaximumWithoutIndicesAndOfNan) {
  const auto device = make_device("cpu");
  for (const Layout layout : {Layout::channels_last, Layout::contiguous}) {
    Array x({1, 1, 2, 4}, DType::f32, layout), y({1, 1, 1, 2}, DType::f32, layout);
    x.set({1, -2, -7, -5, 3, 2, std::nan(""), -6});
    device->kernels().pool2d({}, x, y, View{});
    EXPECT_EQ(y.values()[0], 3);
    EXPECT_TRUE(std::isnan(y.values()[1]));
  }
}

TEST(PoolingEdges, RefusesWhatDoesNotFit) {
  const auto device = make_device("cpu");
  Kernels& kernels = device->kernels();
  Array x({1, 2, 6, 6}), y({1, 2, 3, 3}), wrong({1, 2, 3, 2}), indices({1, 2, 3, 3}, DType::i64);
  EXPECT_THROW(kernels.pool2d({}, x, wrong, View{}), UsageError);
  EXPECT_THROW(kernels.pool2d({}, x, y, indices), UsageError);
  EXPECT_THROW(kernels.pool2d_backward({}, y, View{}, x), UsageError);
  EXPECT_THROW(kernels.pool2d({.pad_h = 2}, x, y, View{}), UsageError);
}

TEST(FusedBlockEdges, RefusesOverlappingWindows) {
  const auto device = make_device("cpu");
  Array x({1, 1, 8, 8}), w({1, 1, 3, 3}), y({1, 1, 4, 4}), mask({1, 1, 4, 4}, DType::u8);
  const Pool2dGeometry overlapping{.kernel_h = 3, .kernel_w = 3, .stride_h = 1, .stride_w = 1};
  EXPECT_FALSE(can_fuse_pool(overlapping));
  EXPECT_THROW(device->kernels().conv2d_relu_pool2d({}, overlapping, x, w, View{}, y, mask), UsageError);
}

}  // namespace
}  // namespace dtrain
