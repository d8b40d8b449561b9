// Convolutions at their edges: empty batches, refusals, NaN, the same bits again. What they compute is in the
// table of operations.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/device/cpu/naive.h"
#include "tests/unit/device/array.h"

namespace dtrain {
namespace {

using test::Array;
using test::Layout;

TEST(ConvolutionEdges, WithoutBiasAndWithoutImages) {
  const auto device = make_device("cpu");
  Generator generator(3);
  const Array x = Array::random({2, 3, 5, 5}, generator), w = Array::random({4, 3, 3, 3}, generator);
  Array y({2, 4, 3, 3}), expected({2, 4, 3, 3});
  device->kernels().conv2d({}, x, w, View{}, Activation::none, y);
  cpu::naive::conv2d({}, x, w, View{}, Activation::none, expected);
  test::expect_near(y.values(), expected.values(), test::sum_tolerance(27, DType::f32), "no bias");

  const Array none({0, 3, 5, 5});
  Array nothing({0, 4, 3, 3}), dw = Array::random({4, 3, 3, 3}, generator);
  EXPECT_NO_THROW(device->kernels().conv2d({}, none, w, View{}, Activation::none, nothing));
  device->kernels().conv2d_backward_weight({}, none, nothing, dw, View{});
  for (const double value : dw.values()) EXPECT_EQ(value, 0);
}

TEST(ConvolutionEdges, RefusesShapesThatDoNotFit) {
  const auto device = make_device("cpu");
  const Array x({2, 3, 5, 5}), w({4, 3, 3, 3}), wrong_w({4, 2, 3, 3});
  Array y({2, 4, 3, 3}), wrong_y({2, 4, 4, 3}), bias({3});
  Kernels& kernels = device->kernels();
  EXPECT_THROW(kernels.conv2d({}, x, wrong_w, View{}, Activation::none, y), UsageError);
  EXPECT_THROW(kernels.conv2d({}, x, w, View{}, Activation::none, wrong_y), UsageError);
  EXPECT_THROW(kernels.conv2d({}, x, w, bias, Activation::none, y), UsageError);
  EXPECT_THROW(kernels.conv2d({.groups = 3}, x, w, View{}, Activation::none, y), UsageError);
  EXPECT_THROW(kernels.conv2d({.groups = 0}, x, w, View{}, Activation::none, y), UsageError);
  EXPECT_THROW(kernels.conv2d({.stride_h = 0}, x, w, View{}, Activation::none, y), UsageError);
}

/// A diverged run must be seen: no relu may turn NaN into 0.
TEST(ConvolutionEdges, NanComesThroughRelu) {
  const auto device = make_device("cpu");
  Kernels& kernels = device->kernels();
  Generator generator(6);
  for (const std::int64_t images : {3, 16}) {
    const Array x = Array::random({images, 8, 9, 9}, generator, DType::f32, Layout::channels_last);
    Array w = Array::random({50, 8, 3, 3}, generator),
          y({images, 50, 7, 7}, DType::f32, Layout::channels_last),
          pooled({images, 50, 3, 3}, DType::f32, Layout::channels_last);
    auto values = w.values();
    values[0] = std::nan("");
    w.set(values);
    kernels.conv2d({}, x, w, View{}, Activation::relu, y);
    EXPECT_TRUE(std::isnan(y.values()[0]));
    for (const PoolKind kind : {PoolKind::avg, PoolKind::max}) {
      kernels.conv2d_relu_pool2d({}, {.kind = kind}, x, w, View{}, pooled, View{});
      EXPECT_TRUE(std::isnan(pooled.values()[0]));
    }
  }
  Array a({1, 2, 3}), b = Array::random({1, 3, 4}, generator), out({1, 2, 4});
  a.set({std::nan(""), 1, 1, 1, 1, 1});
  kernels.matmul(a, b, View{}, Activation::relu, false, out);
  EXPECT_TRUE(std::isnan(out.values()[0]));
  EXPECT_FALSE(std::isnan(out.values()[4]));
}

/// The same call twice, from memory at other addresses, gives the same bits: resuming depends on it.
TEST(ConvolutionEdges, RepeatsBitForBit) {
  std::vector<double> first;
  for (int round = 0; round < 3; ++round) {
    const auto device = make_device("cpu");
    const Array spacer({17 * (round + 1)});
    Generator generator(11);
    const Array x = Array::random({3, 20, 13, 13}, generator, DType::f32, Layout::channels_last),
                grad = Array::random({3, 50, 9, 9}, generator, DType::f32, Layout::channels_last);
    Array dw({50, 20, 5, 5}), db({50});
    device->kernels().conv2d_backward_weight({}, x, grad, dw, db);
    if (round == 0) first = dw.values();
    EXPECT_EQ(dw.values(), first);
  }
}

}  // namespace
}  // namespace dtrain
