// The edges of convolution and pooling: geometries that mean nothing, images smaller than the kernel, and
// arrays of nothing.
#include <gtest/gtest.h>

#include <cstring>

#include "runtime/base/error.h"
#include "runtime/device/cpu/naive.h"
#include "tests/unit/device/array.h"

namespace dtrain {
namespace {

using test::Array;
using test::Layout;

constexpr std::int64_t kHuge = std::int64_t{1} << 62;

TEST(Geometry, OfPoolingIsCheckedBeforeMemoryIsTouched) {
  const auto device = make_device("cpu");
  const Pool2dGeometry wrong[] = {
      {.kernel_h = 0, .kernel_w = 2},
      {.kernel_h = -1, .kernel_w = 2},
      {.kernel_h = 2, .kernel_w = -3, .stride_h = 2, .stride_w = 2},
      {.stride_h = 0},
      {.pad_h = -1},
      {.kernel_h = kHuge, .pad_h = kHuge / 2},
  };
  Array x({1, 2, 6, 6}), y({1, 2, 3, 3}), w({2, 2, 1, 1}), mask({1, 2, 3, 3}, DType::u8);
  for (const PoolKind kind : {PoolKind::max, PoolKind::avg}) {
    for (Pool2dGeometry pool : wrong) {
      pool.kind = kind;
      EXPECT_THROW(device->kernels().pool2d(pool, x, y, mask), UsageError);
      EXPECT_THROW(device->kernels().pool2d_backward(pool, y, mask, x), UsageError);
      EXPECT_FALSE(can_fuse_pool(pool));
      EXPECT_THROW(device->kernels().conv2d_relu_pool2d({}, pool, x, w, {}, y, mask), UsageError);
    }
  }
}

TEST(Geometry, OfConvolutionIsCheckedInEveryDtype) {
  const auto device = make_device("cpu");
  const Conv2dGeometry wrong[] = {{.stride_h = 0},
                                  {.pad_h = -1, .pad_w = -1},
                                  {.dilation_w = 0},
                                  {.groups = 0},
                                  {.pad_h = kHuge, .pad_w = kHuge}};
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    Array x({1, 2, 6, 6}, dtype), y({1, 2, 4, 4}, dtype), w({2, 2, 3, 3}, dtype);
    for (const Conv2dGeometry& geometry : wrong) {
      EXPECT_THROW(device->kernels().conv2d(geometry, x, w, {}, Activation::none, y), UsageError);
      EXPECT_THROW(device->kernels().conv2d_backward_input(geometry, y, w, x), UsageError);
      EXPECT_THROW(device->kernels().conv2d_backward_weight(geometry, x, y, w, {}), UsageError);
    }
    Array empty({2, 2, 0, 3}, dtype);
    EXPECT_THROW(device->kernels().conv2d({}, x, empty, {}, Activation::none, y), UsageError);
  }
}

TEST(FusedBlockEdges, ChecksWeightBiasAndGradients) {
  const auto device = make_device("cpu");
  Kernels& k = device->kernels();
  const Array x({16, 2, 6, 6}), w({4, 2, 3, 3}), y({16, 4, 2, 2}), mask({16, 4, 2, 2}, DType::u8);
  EXPECT_THROW(k.conv2d_relu_pool2d({}, {}, x, Array({4, 3, 3, 3}), {}, y, mask), UsageError);
  EXPECT_THROW(k.conv2d_relu_pool2d({}, {}, x, Array({4, 2, 3, 3}, DType::f64), {}, y, mask), UsageError);
  EXPECT_THROW(k.conv2d_relu_pool2d({}, {}, x, w, Array({2}), y, mask), UsageError);
  EXPECT_THROW(k.conv2d_relu_pool2d({}, {}, x, w, Array({4}, DType::f64), y, mask), UsageError);
  EXPECT_THROW(k.conv2d_relu_pool2d_backward({}, {}, x, w, y, mask, x, w, Array({3})), UsageError);
}

/// Kernel elements that lie in the padding wherever the window is have a gradient of 0.
TEST(ConvolutionEdges, GradientOfWhatMeetsNoInputIsZero) {
  struct Case {
    Dims input, weight;
    Conv2dGeometry geometry;
  };
  const Case cases[] = {
      {{4, 32, 6, 1}, {64, 32, 3, 3}, {.stride_h = 2, .stride_w = 2, .pad_h = 1, .pad_w = 1}},
      {{4, 32, 6, 1}, {64, 32, 2, 2}, {.stride_h = 3, .stride_w = 3, .pad_w = 1}},
      {{4, 6, 5, 2}, {10, 6, 1, 2}, {.stride_w = 3, .pad_w = 1, .dilation_h = 2}},
      {{3, 38, 1, 1}, {18, 19, 4, 3}, {.stride_h = 3, .stride_w = 2, .pad_h = 2, .pad_w = 2, .groups = 2}},
      {{2, 32, 1, 1}, {32, 32, 3, 3}, {.pad_h = 1, .pad_w = 1}},
  };
  const auto device = make_device("cpu");
  Generator generator(4);
  // Memory that kernels keep must not be clean by chance.
  Array large({4, 64, 12, 12}, DType::bf16), kernel({64, 64, 5, 5}, DType::bf16);
  device->kernels().fill(large, 3.7e19);
  for (const Case& c : cases) {
    const Conv2dGeometry& g = c.geometry;
    const Dims out = {c.input[0], c.weight[0],
                      (c.input[2] + 2 * g.pad_h - g.dilation_h * (c.weight[2] - 1) - 1) / g.stride_h + 1,
                      (c.input[3] + 2 * g.pad_w - g.dilation_w * (c.weight[3] - 1) - 1) / g.stride_w + 1};
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const DType gradient : {DType::f32, DType::bf16}) {
        if (dtype == DType::f32 && gradient != dtype) continue;
        const Array x = Array::random(c.input, generator, dtype, Layout::channels_last),
                    dy = Array::random(out, generator, dtype, Layout::channels_last);
        const Array dw(c.weight, gradient), exact(c.weight, DType::f64);
        std::memset(dw.view().data, 0xff, static_cast<std::size_t>(dw.view().numel()) * size_of(gradient));
        device->kernels().conv2d_backward_weight({.pad_h = 2, .pad_w = 2}, large, large, kernel, {});
        device->kernels().conv2d_backward_weight(g, x, dy, dw, {});
        cpu::naive::conv2d_backward_weight(g, x.as(DType::f64), dy.as(DType::f64), exact, {});
        test::expect_near(dw.values(), exact.values(),
                          test::sum_tolerance(out[0] * out[2] * out[3], gradient), c.weight.to_string());
      }
    }
  }
}

TEST(ConvolutionEdges, BiasGradientMayBeWiderThanTheWeights) {
  const auto device = make_device("cpu");
  Generator generator(6);
  for (const bool fast : {true, false}) {
    const Dims weight = fast ? Dims{32, 32, 3, 3} : Dims{3, 3, 3, 3};
    const Array x = Array::random({2, weight[1], 6, 6}, generator, DType::bf16),
                dy = Array::random({2, weight[0], 6, 6}, generator, DType::bf16);
    Array dw(weight, DType::bf16), db({weight[0]}), exact_dw(weight, DType::f64),
        exact_db({weight[0]}, DType::f64);
    const Conv2dGeometry padded{.pad_h = 1, .pad_w = 1};
    device->kernels().conv2d_backward_weight(padded, x, dy, dw, db);
    cpu::naive::conv2d_backward_weight(padded, x.as(DType::f64), dy.as(DType::f64), exact_dw, exact_db);
    test::expect_near(dw.values(), exact_dw.values(), test::sum_tolerance(72, DType::bf16), "weight");
    test::expect_near(db.values(), exact_db.values(), test::sum_tolerance(72, DType::f32), "bias");
  }
}

TEST(PoolingEdges, BackwardOfNothingNeedsNoIndices) {
  const auto device = make_device("cpu");
  const Array x({0, 2, 4, 4}), y({0, 2, 2, 2});
  View none = y;
  none.data = nullptr;
  EXPECT_NO_THROW(device->kernels().pool2d_backward({}, none, {}, x));
}

}  // namespace
}  // namespace dtrain
