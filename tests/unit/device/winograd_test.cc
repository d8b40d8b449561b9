// Winograd's algorithm beside the definition in double, with tiles of both sizes and the vectors of every
// kind of processor that this one can be.
#include "runtime/device/cpu/convolution/winograd.h"

#include <gtest/gtest.h>

#include <cmath>

#include "runtime/device/cpu/convolution/winograd_loops.h"
#include "runtime/device/cpu/naive.h"
#include "tests/unit/device/array.h"

namespace dtrain {
namespace {

using test::Array;
using test::Layout;

const Conv2dGeometry kGeometry{.pad_h = 1, .pad_w = 1};

struct Case {
  const char* name;
  std::int64_t n, c, o, h, w;

  Dims input() const { return {n, c, h, w}; }
  Dims weight() const { return {o, c, 3, 3}; }
  Dims output() const { return {n, o, h, w}; }
};

std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

// A block of tiles is 56 (forward) or 128 (gradients of weights, whose sums are added up by pieces where
// there are few tiles for the channels: the first case, and those that say so; the last in bf16 only). With
// the large tiles of f32 gradients it is 28 and 32; 5 x 5 has small ones.
const Case kCases[] = {
    {"one_tile_high", 1, 32, 32, 4, 4},
    {"odd_extents", 2, 32, 64, 7, 5},
    {"several_blocks", 5, 64, 32, 9, 12},
    {"tile_left_over", 3, 96, 32, 5, 5},
    {"many_channels", 34, 256, 32, 4, 4},
    {"whole_blocks", 4, 32, 96, 14, 16},
    {"few_tiles", 2, 64, 96, 4, 4},
    {"few_tiles_odd_channels", 2, 96, 64, 4, 4},
    {"few_tiles_two_blocks", 33, 160, 160, 4, 4},
};

class Winograd : public ::testing::TestWithParam<std::tuple<Case, DType>> {
 protected:
  void SetUp() override {
    if (cpu::winograd_loops(dtype(), cpu::kSmallTile) == nullptr) {
      GTEST_SKIP() << "this processor has no AVX-512 for " << name_of(dtype()) << ", or something faster";
    }
  }
  const Case& shape() const { return std::get<0>(GetParam()); }
  DType dtype() const { return std::get<1>(GetParam()); }
  Array random(const Dims& dims, Layout layout = Layout::channels_last) {
    return Array::random(dims, generator_, dtype(), layout);
  }

  Generator generator_{5};
  cpu::WinogradScratch scratch_;
};

TEST_P(Winograd, ForwardFollowsTheDefinition) {
  const Array x = random(shape().input()), w = random(shape().weight(), Layout::contiguous);
  const Array bias = Array::random({shape().o}, generator_);
  Array y(shape().output(), dtype(), Layout::channels_last), expected(shape().output(), DType::f64);
  ASSERT_TRUE(cpu::winograd_can(kGeometry, x, w, y));
  cpu::winograd_forward(x, w, bias, y, scratch_);
  cpu::naive::conv2d(kGeometry, x.as(DType::f64), w.as(DType::f64), bias.as(DType::f64), Activation::none,
                     expected);
  test::expect_near(y.values(), expected.values(), test::sum_tolerance(9 * shape().c, dtype()), "forward");
}

TEST_P(Winograd, GradientOfTheInputFollowsTheDefinition) {
  const Array dy = random(shape().output()), w = random(shape().weight(), Layout::contiguous);
  Array dx(shape().input(), dtype(), Layout::channels_last), expected(shape().input(), DType::f64);
  cpu::winograd_backward_input(dy, w, dx, scratch_);
  cpu::naive::conv2d_backward_input(kGeometry, dy.as(DType::f64), w.as(DType::f64), expected);
  test::expect_near(dx.values(), expected.values(), test::sum_tolerance(9 * shape().o, dtype()), "dx");
}

TEST_P(Winograd, GradientsOfTheParametersFollowTheDefinition) {
  const Array x = random(shape().input()), dy = random(shape().output());
  Array dw(shape().weight()), db({shape().o}), expected(shape().weight(), DType::f64),
      expected_bias({shape().o}, DType::f64);
  cpu::winograd_backward_weight(x, dy, dw, db, scratch_);
  cpu::naive::conv2d_backward_weight(kGeometry, x.as(DType::f64), dy.as(DType::f64), expected, expected_bias);
  const std::int64_t places = shape().n * shape().h * shape().w;
  test::expect_near(dw.values(), expected.values(), test::sum_tolerance(places, dtype()), "dw");
  test::expect_near(db.values(), expected_bias.values(), test::sum_tolerance(places, DType::f32), "db");
  Array without(shape().weight());
  cpu::winograd_backward_weight(x, dy, without, View{}, scratch_);
  EXPECT_EQ(without.values(), dw.values());
}

/// An image's result has the same bits in any batch, whatever was in the scratch memory before.
TEST_P(Winograd, TheNumberOfImagesDoesNotCount) {
  const Array x = random(shape().input()), w = random(shape().weight(), Layout::contiguous);
  Array y(shape().output(), dtype(), Layout::channels_last);
  cpu::winograd_forward(x, w, View{}, y, scratch_);
  View last = x.view();
  const std::int64_t before = (shape().n - 1) * x.view().strides[0];
  last.data = last.as<std::byte>() + before * static_cast<std::int64_t>(size_of(dtype()));
  last.shape[0] = 1;
  Array alone({1, shape().o, shape().h, shape().w}, dtype(), Layout::channels_last);
  cpu::WinogradScratch fresh;
  cpu::winograd_forward(last, w, View{}, alone, fresh);
  const auto all = y.values(), one = alone.values();
  EXPECT_TRUE(std::equal(one.begin(), one.end(), all.end() - static_cast<std::ptrdiff_t>(one.size())));
}

INSTANTIATE_TEST_SUITE_P(Shapes, Winograd,
                         ::testing::Combine(::testing::ValuesIn(kCases),
                                            ::testing::Values(DType::f32, DType::bf16)),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param).name) +
                                  (std::get<1>(test.param) == DType::f32 ? "_f32" : "_bf16");
                         });

// What each size of tile makes of the same layer, whichever convolution takes it: with the error of f32 sums,
// and no more than a few times that of small tiles with large ones.
TEST(WinogradTiles, LargeOnesLoseFewDigits) {
  Generator generator(3);
  const Dims shape{2, 64, 12, 12};
  const Array dy = Array::random(shape, generator, DType::f32, Layout::channels_last);
  const Array w = Array::random({64, 64, 3, 3}, generator);
  Array dx(shape, DType::f32, Layout::channels_last), y = dx, expected(shape, DType::f64);
  // Filters turned by half a turn, inputs and outputs changed over: forward computes the gradient.
  Array turned({64, 64, 3, 3});
  for (std::int64_t o = 0; o < 64; ++o)
    for (std::int64_t c = 0; c < 64; ++c)
      for (std::int64_t i = 0; i < 9; ++i)
        turned.view().as<float>()[(c * 64 + o) * 9 + i] =
            w.view().as<const float>()[(o * 64 + c) * 9 + 8 - i];
  cpu::WinogradScratch scratch;
  cpu::winograd_backward_input(dy, w, dx, scratch);
  cpu::winograd_forward(dy, turned, View{}, y, scratch);
  cpu::naive::conv2d_backward_input(kGeometry, dy.as(DType::f64), w.as(DType::f64), expected);
  const auto error = [&](const Array& of) {
    const auto got = of.values(), wanted = expected.values();
    double squares = 0, all = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      squares += (got[i] - wanted[i]) * (got[i] - wanted[i]);
      all += wanted[i] * wanted[i];
    }
    return std::sqrt(squares / all);
  };
  EXPECT_LT(error(y), 3e-7);
  EXPECT_LT(error(dx), 1.2e-6);
  EXPECT_GT(error(dx), error(y)) << "both are small tiles";
}

/// A diverged run must be seen.
/// A diverged run must be seen.
TEST(WinogradEdges, NanComesThrough) {
  Generator generator(2);
  Array x = Array::random({1, 32, 4, 4}, generator, DType::f32, Layout::channels_last);
  const Array w = Array::random({32, 32, 3, 3}, generator);
  Array y({1, 32, 4, 4}, DType::f32, Layout::channels_last);
  auto values = x.values();
  values[0] = std::nan("");
  x.set(values);
  cpu::WinogradScratch scratch;
  cpu::winograd_forward(x, w, View{}, y, scratch);
  EXPECT_TRUE(std::isnan(y.values()[0]));
}

TEST(WinogradEdges, LeavesOtherConvolutionsToOthers) {
  const auto can = [](Conv2dGeometry g, std::int64_t c, std::int64_t o, std::int64_t side,
                      std::int64_t kernel, DType dtype, Layout layout) {
    const std::int64_t out = (side + 2 * g.pad_h - kernel) / g.stride_h + 1;
    const Array x({2, c, side, side}, dtype, layout), w({o, c, kernel, kernel}, dtype),
        y({2, o, out, out}, dtype, layout);
    return cpu::winograd_can(g, x, w, y);
  };
  const auto kLast = Layout::channels_last;
  EXPECT_TRUE(can(kGeometry, 32, 64, 8, 3, DType::f32, kLast));
  EXPECT_FALSE(can({}, 32, 64, 8, 3, DType::f32, kLast));
  EXPECT_FALSE(can({.stride_h = 2, .stride_w = 2, .pad_h = 1, .pad_w = 1}, 32, 64, 8, 3, DType::f32, kLast));
  EXPECT_FALSE(can(kGeometry, 20, 64, 8, 3, DType::f32, kLast));
  EXPECT_FALSE(can(kGeometry, 32, 50, 8, 3, DType::f32, kLast));
  EXPECT_FALSE(can(kGeometry, 32, 64, 3, 3, DType::f32, kLast));
  EXPECT_FALSE(can(kGeometry, 32, 64, 8, 1, DType::f32, kLast));
  EXPECT_FALSE(can(kGeometry, 32, 64, 8, 3, DType::f64, kLast));
  EXPECT_FALSE(can(kGeometry, 32, 64, 8, 3, DType::f32, Layout::contiguous));
}

}  // namespace
}  // namespace dtrain
