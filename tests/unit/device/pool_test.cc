// Pooling against a definition written for the test, and the fused convolution-relu-pooling against its
// parts.
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "runtime/base/error.h"
#include "tests/unit/device/array.h"

namespace dtrain {
namespace {

using test::Array;
using test::Layout;

struct Case {
  const char* name;
  std::int64_t n, c, h, w;
  Pool2dGeometry geometry;

  Dims input() const { return {n, c, h, w}; }
  Dims output() const {
    const Pool2dGeometry& g = geometry;
    return {n, c, (h + 2 * g.pad_h - g.kernel_h) / g.stride_h + 1,
            (w + 2 * g.pad_w - g.kernel_w) / g.stride_w + 1};
  }
};

constexpr auto kAvg = PoolKind::avg;
constexpr auto kMax = PoolKind::max;
const Case kCases[] = {
    {"lenet1", 3, 20, 26, 26, {.kind = kAvg}},
    {"lenet2", 2, 50, 9, 9, {.kind = kAvg}},
    {"max_2x2", 2, 19, 9, 8, {.kind = kMax}},
    {"max_resnet",
     2,
     5,
     9,
     11,
     {.kind = kMax, .kernel_h = 3, .kernel_w = 3, .stride_h = 2, .stride_w = 2, .pad_h = 1, .pad_w = 1}},
    {"avg_padded",
     2,
     5,
     7,
     8,
     {.kind = kAvg, .kernel_h = 3, .kernel_w = 2, .stride_h = 2, .stride_w = 1, .pad_h = 1, .pad_w = 1}},
    {"avg_overlapping",
     1,
     33,
     6,
     6,
     {.kind = kAvg, .kernel_h = 3, .kernel_w = 3, .stride_h = 1, .stride_w = 1}},
    {"avg_gaps", 2, 4, 9, 9, {.kind = kAvg, .kernel_h = 2, .kernel_w = 1, .stride_h = 3, .stride_w = 2}},
    {"max_gaps", 2, 4, 9, 9, {.kind = kMax, .kernel_h = 1, .kernel_w = 2, .stride_h = 2, .stride_w = 3}},
    {"whole_image", 2, 3, 4, 5, {.kind = kAvg, .kernel_h = 4, .kernel_w = 5, .stride_h = 4, .stride_w = 5}},
};

/// Output and gradient of the input, straight from the definition.
struct Expected {
  std::vector<double> output, grad_input;
};

Expected define(const Case& c, const std::vector<double>& x, const std::vector<double>& dy) {
  const Pool2dGeometry& g = c.geometry;
  const Dims out = c.output();
  Expected result{{}, std::vector<double>(x.size(), 0.0)};
  for (std::int64_t plane = 0; plane < c.n * c.c; ++plane)
    for (std::int64_t oh = 0; oh < out[2]; ++oh)
      for (std::int64_t ow = 0; ow < out[3]; ++ow) {
        double sum = 0, best = -std::numeric_limits<double>::infinity();
        std::size_t winner = 0;
        std::vector<std::size_t> members;
        for (std::int64_t kh = 0; kh < g.kernel_h; ++kh)
          for (std::int64_t kw = 0; kw < g.kernel_w; ++kw) {
            const std::int64_t h = oh * g.stride_h - g.pad_h + kh, w = ow * g.stride_w - g.pad_w + kw;
            if (h < 0 || h >= c.h || w < 0 || w >= c.w) continue;
            const auto at = static_cast<std::size_t>((plane * c.h + h) * c.w + w);
            members.push_back(at);
            sum += x[at];
            if (x[at] > best) best = x[at], winner = at;
          }
        const double share = 1.0 / static_cast<double>(g.kernel_h * g.kernel_w);
        const double grad = dy[result.output.size()];
        result.output.push_back(g.kind == kAvg ? sum * share : best);
        if (g.kind == kMax) result.grad_input[winner] += grad;
        if (g.kind == kAvg) {
          for (const std::size_t at : members) result.grad_input[at] += grad * share;
        }
      }
  return result;
}

class Pooling : public ::testing::TestWithParam<Case> {};

void check(const Case& c, DType dtype, Layout layout, DType index_dtype) {
  SCOPED_TRACE(std::string(name_of(dtype)) +
               (layout == Layout::contiguous ? " contiguous" : " channels-last"));
  Generator generator(5);
  const Array x = Array::random(c.input(), generator, dtype, layout),
              dy = Array::random(c.output(), generator, dtype, layout);
  const auto device = make_device("cpu");
  Array y(c.output(), dtype, layout), dx = Array::random(c.input(), generator, dtype, layout),
                                      indices(c.output(), index_dtype, layout);
  View kept = indices;
  if (c.geometry.kind == kAvg) kept.data = nullptr;
  device->kernels().pool2d(c.geometry, x, y, kept);
  device->kernels().pool2d_backward(c.geometry, dy, kept, dx);
  const Expected expected = define(c, x.values(), dy.values());
  const double tolerance = test::sum_tolerance(c.geometry.kernel_h * c.geometry.kernel_w, dtype);
  test::expect_near(y.values(), expected.output, tolerance, "output");
  test::expect_near(dx.values(), expected.grad_input, tolerance, "gradient");
}

TEST_P(Pooling, FollowsTheDefinition) {
  for (const Layout layout : {Layout::channels_last, Layout::contiguous}) {
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
      check(GetParam(), dtype, layout, DType::u8);
      check(GetParam(), dtype, layout, DType::i32);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, Pooling, ::testing::ValuesIn(kCases),
                         [](const auto& param) { return std::string(param.param.name); });

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

struct FusedCase {
  const char* name;
  Dims input, weight;
  Conv2dGeometry conv;
  Pool2dGeometry pool;
};

const FusedCase kFused[] = {
    {"lenet1", {19, 1, 28, 28}, {20, 1, 3, 3}, {}, {.kind = kAvg}},
    {"lenet2", {67, 20, 13, 13}, {50, 20, 5, 5}, {}, {.kind = kAvg}},
    {"lanes_max", {33, 3, 12, 13}, {7, 3, 3, 3}, {}, {.kind = kMax}},
    {"lanes_one_by_one", {16, 13, 5, 7}, {23, 13, 1, 1}, {}, {.kind = kAvg}},
    {"lanes_tall_kernel", {48, 2, 9, 6}, {8, 2, 4, 1}, {}, {.kind = kMax}},
    {"max", {5, 3, 12, 13}, {7, 3, 3, 3}, {}, {.kind = kMax}},
    {"padded", {4, 3, 8, 8}, {6, 3, 3, 3}, {.pad_h = 1, .pad_w = 1}, {.kind = kMax}},
    {"strided_cut",
     {4, 2, 14, 13},
     {6, 2, 3, 3},
     {.stride_h = 2, .stride_w = 2},
     {.kind = kAvg, .kernel_h = 2, .kernel_w = 3, .stride_h = 2, .stride_w = 3}},
    {"gaps",
     {3, 2, 13, 13},
     {5, 2, 3, 3},
     {},
     {.kind = kAvg, .kernel_h = 2, .kernel_w = 2, .stride_h = 4, .stride_w = 3}},
};

class FusedBlock : public ::testing::TestWithParam<FusedCase> {};

/// Runs the block in `dtype`, once as one kernel and once as its parts in float64.
void compare_fused(const FusedCase& c, DType dtype, Layout layout) {
  SCOPED_TRACE(std::string(name_of(dtype)) +
               (layout == Layout::contiguous ? " contiguous" : " channels-last"));
  Generator generator(7);
  const auto device = make_device("cpu");
  Kernels& k = device->kernels();
  const Array x = Array::random(c.input, generator, dtype, layout),
              w = Array::random(c.weight, generator, dtype),
              b = Array::random({c.weight[0]}, generator, dtype);
  const auto extent = [](auto in, auto kernel, auto stride, auto pad) {
    return (in + 2 * pad - kernel) / stride + 1;
  };
  const Dims middle = {c.input[0], c.weight[0],
                       extent(c.input[2], c.weight[2], c.conv.stride_h, c.conv.pad_h),
                       extent(c.input[3], c.weight[3], c.conv.stride_w, c.conv.pad_w)};
  const Dims pooled = {middle[0], middle[1], extent(middle[2], c.pool.kernel_h, c.pool.stride_h, 0),
                       extent(middle[3], c.pool.kernel_w, c.pool.stride_w, 0)};
  const Array dy = Array::random(pooled, generator, dtype, layout);

  Array y(pooled, dtype, layout), again(pooled, dtype, layout), mask(pooled, DType::u8, layout),
      dx = Array::random(c.input, generator, dtype, layout), dw(c.weight, dtype), db({c.weight[0]}, dtype);
  k.conv2d_relu_pool2d(c.conv, c.pool, x, w, b, y, mask);
  k.conv2d_relu_pool2d(c.conv, c.pool, x, w, b, again, View{});
  k.conv2d_relu_pool2d_backward(c.conv, c.pool, x, w, dy, mask, dx, dw, db);

  const auto wide = [](const Array& array) { return array.as(DType::f64); };
  Array yy(pooled, DType::f64), hidden(middle, DType::f64), dh(middle, DType::f64), dxx(c.input, DType::f64),
      dww(c.weight, DType::f64), dbb({c.weight[0]}, DType::f64), places(pooled, DType::u8);
  k.conv2d(c.conv, wide(x), wide(w), wide(b), Activation::relu, hidden);
  k.pool2d(c.pool, hidden, yy, places);
  k.pool2d_backward(c.pool, wide(dy), places, dh);
  k.binary(BinaryOp::relu_grad, dh, hidden, dh);
  k.conv2d_backward_input(c.conv, dh, wide(w), dxx);
  k.conv2d_backward_weight(c.conv, wide(x), dh, dww, dbb);

  const std::int64_t fan_in = w.view().numel() / c.weight[0], places_read = middle[0] * middle[2] * middle[3];
  test::expect_near(y.values(), yy.values(), test::sum_tolerance(fan_in, dtype), "output");
  EXPECT_EQ(again.values(), y.values());
  test::expect_near(dx.values(), dxx.values(),
                    test::sum_tolerance(c.weight[0] * c.weight[2] * c.weight[3], dtype), "grad_input");
  test::expect_near(dw.values(), dww.values(), test::sum_tolerance(places_read, dtype), "grad_weight");
  test::expect_near(db.values(), dbb.values(), test::sum_tolerance(places_read, dtype), "grad_bias");
}

TEST_P(FusedBlock, MatchesItsParts) {
  compare_fused(GetParam(), DType::f32, Layout::channels_last);
  compare_fused(GetParam(), DType::f32, Layout::contiguous);
  compare_fused(GetParam(), DType::f64, Layout::channels_last);
}

INSTANTIATE_TEST_SUITE_P(Shapes, FusedBlock, ::testing::ValuesIn(kFused),
                         [](const auto& param) { return std::string(param.param.name); });

TEST(FusedBlockEdges, RefusesOverlappingWindows) {
  const auto device = make_device("cpu");
  Array x({1, 1, 8, 8}), w({1, 1, 3, 3}), y({1, 1, 4, 4}), mask({1, 1, 4, 4}, DType::u8);
  const Pool2dGeometry overlapping{.kernel_h = 3, .kernel_w = 3, .stride_h = 1, .stride_w = 1};
  EXPECT_FALSE(can_fuse_pool(overlapping));
  EXPECT_THROW(device->kernels().conv2d_relu_pool2d({}, overlapping, x, w, View{}, y, mask), UsageError);
}

}  // namespace
}  // namespace dtrain
