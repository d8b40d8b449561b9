// Element-wise kernels where the table of operations (tests/operations) does not look: in place, integers,
// NaN, mixed layouts, casts, strides, and what is refused.
#include <gtest/gtest.h>

#include <limits>

#include "runtime/base/error.h"
#include "tests/unit/device/array.h"

namespace dtrain {
namespace {

using test::Array;
using test::Layout;

TEST(Unary, InPlaceIntegersAndNan) {
  const auto device = make_device("cpu");
  Array ints({3}, DType::i64), bytes({3}, DType::u8), nan({2});
  ints.set({-2, 0, 5});
  device->kernels().unary(UnaryOp::square, ints, ints);
  EXPECT_EQ(ints.values(), (std::vector<double>{4, 0, 25}));
  EXPECT_THROW(device->kernels().unary(UnaryOp::exp, ints, ints), UsageError);
  EXPECT_THROW(device->kernels().unary(UnaryOp::neg, bytes, bytes), UsageError);
  nan.set({std::nan(""), -1});
  device->kernels().unary(UnaryOp::relu, nan, nan);
  EXPECT_TRUE(std::isnan(nan.values()[0]));
  EXPECT_EQ(nan.values()[1], 0);
}

TEST(Binary, IntegersMixedLayoutsAndRefusals) {
  const auto device = make_device("cpu");
  Kernels& kernels = device->kernels();
  Array a({4}, DType::i64), b({4}, DType::i64), out({4}, DType::i64);
  a.set({7, -7, 2, -1});
  b.set({2, 2, 10, 3});
  kernels.binary(BinaryOp::div, a, b, out);
  EXPECT_EQ(out.values(), (std::vector<double>{3, -3, 0, 0}));
  kernels.binary(BinaryOp::pow, a, b, out);
  EXPECT_EQ(out.values(), (std::vector<double>{49, 49, 1024, -1}));
  b.set({1, 0, 1, 1});
  EXPECT_THROW(kernels.binary(BinaryOp::div, a, b, out), UsageError);

  Generator generator(3);
  const Array x = Array::random({2, 3, 4, 5}, generator, DType::f32, Layout::channels_last),
              y = Array::random({2, 3, 4, 5}, generator);
  Array sum({2, 3, 4, 5});
  kernels.binary(BinaryOp::add, x, y, sum);
  const auto p = x.values(), q = y.values(), s = sum.values();
  for (std::size_t i = 0; i < s.size(); ++i) EXPECT_EQ(s[i], p[i] + q[i]);

  Array small({2, 3}), none({0, 3}), floats({4});
  EXPECT_THROW(kernels.binary(BinaryOp::add, x, small, sum), UsageError);
  EXPECT_THROW(kernels.binary(BinaryOp::add, a, floats, out), UsageError);
  EXPECT_NO_THROW(kernels.binary(BinaryOp::add, none, none, none));
}

TEST(Where, PicksByCondition) {
  const auto device = make_device("cpu");
  Array condition({4}), a({4}), b({4}), out({4}), bytes({4}, DType::u8);
  condition.set({0, 1, -1, 0});
  a.set({1, 2, 3, 4});
  b.set({5, 6, 7, 8});
  device->kernels().where(condition, a, b, out);
  EXPECT_EQ(out.values(), (std::vector<double>{5, 2, 3, 8}));
  bytes.set({1, 0, 0, 1});
  device->kernels().where(bytes, a, b, out);
  EXPECT_EQ(out.values(), (std::vector<double>{1, 6, 7, 4}));
}

TEST(Copy, CastsAndTransposes) {
  const auto device = make_device("cpu");
  Generator generator(4);
  const Array from = Array::random({2, 3, 4, 5}, generator);
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    Array to(from.view().shape, dtype, Layout::channels_last);
    device->kernels().copy(from, to);
    EXPECT_EQ(to.values(), from.values());
  }
  Array floats({4}), ints({4}, DType::i64), halves({2}, DType::bf16);
  floats.set({1.75, -1.75, 200, 0});
  device->kernels().copy(floats, ints);
  EXPECT_EQ(ints.values(), (std::vector<double>{1, -1, 200, 0}));
  Array exact({2});
  exact.set({1 + 1.0 / 256, 1 + 3.0 / 256});
  device->kernels().copy(exact, halves);
  EXPECT_EQ(halves.values(), (std::vector<double>{1, 1 + 1.0 / 64}));
}

TEST(Affine, ScalesPixelsToTheRoundedQuotient) {
  const auto device = make_device("cpu");
  Array pixels({256}, DType::u8), out({256});
  std::vector<double> values;
  for (int i = 0; i < 256; ++i) values.push_back(i);
  pixels.set(values);
  device->kernels().affine(pixels, 1.0 / 255, 0, out);
  for (int i = 0; i < 256; ++i) {
    EXPECT_EQ(out.view().as<float>()[i], static_cast<float>(i) / 255.0F) << i;
  }
  device->kernels().affine(out, 2, -1, out);
  EXPECT_EQ(out.values().front(), -1);
  EXPECT_EQ(out.values().back(), 1);
}

TEST(FillAndAccumulate, Strided) {
  const auto device = make_device("cpu");
  Array whole({4, 6});
  device->kernels().fill(whole, 1);
  View part = whole;
  part.shape = {2, 3};
  part.strides = {12, 2};
  device->kernels().fill(part, 5);
  double sum = 0;
  for (const double value : whole.values()) sum += value;
  EXPECT_EQ(sum, 18 + 30);
  Array more({4, 6});
  device->kernels().fill(more, 2);
  device->kernels().accumulate(more, 0.5, whole);
  EXPECT_EQ(whole.values()[0], 6);
  EXPECT_EQ(whole.values()[1], 2);
}

}  // namespace
}  // namespace dtrain
