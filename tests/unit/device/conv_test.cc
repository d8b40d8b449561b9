// Convolution: the plain version against seven loops and its own adjoint, the fast one against the plain one.
#include <gtest/gtest.h>

#include <limits>
#include <tuple>

#include "runtime/base/error.h"
#include "runtime/device/cpu/naive.h"
#include "tests/unit/device/array.h"

namespace dtrain {
namespace {

using test::Array;
using test::Layout;

struct Case {
  const char* name;
  std::int64_t n, c, h, w, o, kh, kw;
  Conv2dGeometry geometry;

  Dims input() const { return {n, c, h, w}; }
  Dims weight() const { return {o, c / geometry.groups, kh, kw}; }
  Dims output() const {
    const auto extent = [](auto in, auto k, auto s, auto p, auto d) {
      return (in + 2 * p - d * (k - 1) - 1) / s + 1;
    };
    return {n, o, extent(h, kh, geometry.stride_h, geometry.pad_h, geometry.dilation_h),
            extent(w, kw, geometry.stride_w, geometry.pad_w, geometry.dilation_w)};
  }
};

std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

const Case kCases[] = {
    {"lenet1", 4, 1, 28, 28, 20, 3, 3, {}},
    {"lenet2", 3, 20, 13, 13, 50, 5, 5, {}},
    {"one_by_one", 2, 7, 5, 6, 9, 1, 1, {}},
    {"one_by_one_even", 2, 8, 5, 6, 10, 1, 1, {}},
    {"one_by_one_odd_inputs", 2, 7, 5, 6, 34, 1, 1, {}},
    {"one_by_one_odd_outputs", 2, 8, 5, 6, 33, 1, 1, {}},
    {"odd_everything", 3, 3, 11, 7, 5, 3, 2, {}},
    {"padded", 2, 3, 8, 9, 4, 3, 3, {.pad_h = 1, .pad_w = 1}},
    {"padded_full_lanes", 2, 32, 9, 8, 64, 3, 3, {.pad_h = 1, .pad_w = 1}},
    {"strided", 2, 4, 11, 12, 6, 3, 3, {.stride_h = 2, .stride_w = 3}},
    {"strided_padded", 2, 3, 15, 15, 8, 7, 7, {.stride_h = 2, .stride_w = 2, .pad_h = 3, .pad_w = 3}},
    {"dilated", 2, 3, 12, 13, 4, 3, 3, {.dilation_h = 2, .dilation_w = 3}},
    {"grouped", 2, 8, 9, 9, 12, 3, 3, {.pad_h = 1, .pad_w = 1, .groups = 4}},
    {"depthwise", 2, 6, 8, 8, 6, 3, 3, {.pad_h = 1, .pad_w = 1, .groups = 6}},
    {"whole_image", 5, 3, 4, 4, 2, 4, 4, {}},
    // Gradients of weights that are cut for threads (weight_pieces.h).
    {"weight_by_outputs", 8, 16, 14, 14, 40, 3, 3, {.stride_h = 2, .stride_w = 2, .pad_h = 1, .pad_w = 1}},
    {"weight_by_images", 12, 3, 24, 24, 24, 3, 3, {.pad_h = 1, .pad_w = 1}},
    {"grouped_weight_by_images", 9, 16, 20, 20, 32, 3, 3, {.pad_h = 1, .pad_w = 1, .groups = 4}},
    {"single", 1, 1, 1, 1, 1, 1, 1, {}},
};

class Convolution : public ::testing::TestWithParam<Case> {};

/// Input, weight, bias, and a gradient of the output, of one case.
struct Tensors {
  explicit Tensors(const Case& c, Layout layout = Layout::contiguous, DType dtype = DType::f32)
      : input(Array::random(c.input(), generator, dtype, layout)),
        weight(Array::random(c.weight(), generator, dtype)),
        bias(Array::random({c.o}, generator, dtype)),
        grad(Array::random(c.output(), generator, dtype, layout)) {}
  Generator generator{11};
  Array input, weight, bias, grad;
};

double dot(const Array& a, const Array& b) {
  const auto x = a.values(), y = b.values();
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
  return sum;
}

/// Convolution straight from its definition, over values in row-major order.
std::vector<double> seven_loops(const Case& c, const Tensors& t) {
  const auto x = t.input.values(), w = t.weight.values(), b = t.bias.values();
  const Dims out = c.output();
  const Conv2dGeometry& g = c.geometry;
  const std::int64_t channels = c.c / g.groups;
  std::vector<double> y;
  for (std::int64_t n = 0; n < c.n; ++n)
    for (std::int64_t o = 0; o < c.o; ++o)
      for (std::int64_t oh = 0; oh < out[2]; ++oh)
        for (std::int64_t ow = 0; ow < out[3]; ++ow) {
          double sum = b[static_cast<std::size_t>(o)];
          for (std::int64_t i = 0; i < channels; ++i)
            for (std::int64_t kh = 0; kh < c.kh; ++kh)
              for (std::int64_t kw = 0; kw < c.kw; ++kw) {
                const std::int64_t h = oh * g.stride_h + kh * g.dilation_h - g.pad_h;
                const std::int64_t v = ow * g.stride_w + kw * g.dilation_w - g.pad_w;
                if (h < 0 || h >= c.h || v < 0 || v >= c.w) continue;
                const std::int64_t channel = o / (c.o / g.groups) * channels + i;
                sum += x[static_cast<std::size_t>(((n * c.c + channel) * c.h + h) * c.w + v)] *
                       w[static_cast<std::size_t>(((o * channels + i) * c.kh + kh) * c.kw + kw)];
              }
          y.push_back(sum);
        }
  return y;
}

TEST_P(Convolution, PlainVersionFollowsTheDefinition) {
  const Case& c = GetParam();
  const Tensors t(c, Layout::contiguous, DType::f64);
  Array output(c.output(), DType::f64, Layout::channels_last);
  cpu::naive::conv2d(c.geometry, t.input, t.weight, t.bias, Activation::none, output);
  test::expect_near(output.values(), seven_loops(c, t), 1e-12, c.name);
}

TEST_P(Convolution, PlainGradientsAreTheAdjoint) {
  const Case& c = GetParam();
  const Tensors t(c, Layout::contiguous, DType::f64);
  Array output(c.output(), DType::f64), dx(c.input(), DType::f64), dw(c.weight(), DType::f64),
      db({c.o}, DType::f64);
  cpu::naive::conv2d(c.geometry, t.input, t.weight, View{}, Activation::none, output);
  cpu::naive::conv2d_backward_input(c.geometry, t.grad, t.weight, dx);
  cpu::naive::conv2d_backward_weight(c.geometry, t.input, t.grad, dw, db);
  const double expected = dot(output, t.grad);
  EXPECT_NEAR(dot(t.input, dx), expected, 1e-9);
  EXPECT_NEAR(dot(t.weight, dw), expected, 1e-9);
  double sum = 0, bias_sum = 0;
  for (const double value : t.grad.values()) sum += value;
  for (const double value : db.values()) bias_sum += value;
  EXPECT_NEAR(bias_sum, sum, 1e-9);
}

void compare_with_plain(const Case& c, Layout layout, DType dtype) {
  const Tensors t(c, layout, dtype);
  const auto device = make_device("cpu");
  Kernels& kernels = device->kernels();
  const auto wide = [](const Array& array) { return array.as(DType::f64); };
  const Array x = wide(t.input), w = wide(t.weight), b = wide(t.bias), dy = wide(t.grad);
  Array output(c.output(), dtype, layout), dx(c.input(), dtype, layout), dw(c.weight(), dtype),
      db({c.o}, dtype);
  Array wide_output(c.output(), DType::f64), wide_dx(c.input(), DType::f64), wide_dw(c.weight(), DType::f64),
      wide_db({c.o}, DType::f64);

  kernels.conv2d(c.geometry, t.input, t.weight, t.bias, Activation::relu, output);
  cpu::naive::conv2d(c.geometry, x, w, b, Activation::relu, wide_output);
  const std::int64_t window = w.view().numel() / c.o;
  test::expect_near(output.values(), wide_output.values(), test::sum_tolerance(window, dtype), "forward");

  kernels.conv2d_backward_input(c.geometry, t.grad, t.weight, dx);
  cpu::naive::conv2d_backward_input(c.geometry, dy, w, wide_dx);
  const std::int64_t fan_out = c.o / c.geometry.groups * c.kh * c.kw;
  test::expect_near(dx.values(), wide_dx.values(), test::sum_tolerance(fan_out, dtype), "backward input");

  kernels.conv2d_backward_weight(c.geometry, t.input, t.grad, dw, db);
  cpu::naive::conv2d_backward_weight(c.geometry, x, dy, wide_dw, wide_db);
  const std::int64_t places = dy.view().numel() / c.o;
  test::expect_near(dw.values(), wide_dw.values(), test::sum_tolerance(places, dtype), "backward weight");
  test::expect_near(db.values(), wide_db.values(), test::sum_tolerance(places, dtype), "backward bias");
}

TEST_P(Convolution, FloatMatchesDouble) {
  compare_with_plain(GetParam(), Layout::channels_last, DType::f32);
  compare_with_plain(GetParam(), Layout::contiguous, DType::f32);
}

TEST_P(Convolution, BFloat16MatchesDouble) {
  compare_with_plain(GetParam(), Layout::channels_last, DType::bf16);
}

TEST_P(Convolution, DoubleRunsThroughTheTable) {
  compare_with_plain(GetParam(), Layout::channels_last, DType::f64);
}

INSTANTIATE_TEST_SUITE_P(Shapes, Convolution, ::testing::ValuesIn(kCases),
                         [](const auto& param) { return std::string(param.param.name); });

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
  const Case& c = kCases[1];
  std::vector<double> first;
  for (int round = 0; round < 3; ++round) {
    const auto device = make_device("cpu");
    const Array spacer({17 * (round + 1)});
    const Tensors t(c, Layout::channels_last);
    Array dw(c.weight()), db({c.o});
    device->kernels().conv2d_backward_weight(c.geometry, t.input, t.grad, dw, db);
    if (round == 0) first = dw.values();
    EXPECT_EQ(dw.values(), first);
  }
}

}  // namespace
}  // namespace dtrain
