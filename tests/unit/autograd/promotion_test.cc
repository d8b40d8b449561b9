// Integers beside numbers, and their quotients: the dtypes and values that PyTorch gives.
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "runtime/autograd/ops.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

using Floats = std::vector<float>;
using Ints = std::vector<std::int64_t>;

constexpr float kInf = std::numeric_limits<float>::infinity();

class Promotion : public testing::Test {
 protected:
  std::shared_ptr<Device> device_ = make_device("cpu");
  Tensor ints_ = Tensor::from_data(Ints{-7, 0, 3}, {3}, device_);

  static void expect(const Tensor& got, DType dtype, const Floats& values) {
    EXPECT_EQ(got.dtype(), dtype);
    EXPECT_EQ(got.to_vector<float>(), values);
  }
};

TEST_F(Promotion, AQuotientOfIntegersIsAFraction) {
  expect(ints_ / Tensor::from_data(Ints{2, 2, -2}, {3}, device_), DType::f32, {-3.5F, 0, -1.5F});
  expect(ints_ / 2, DType::f32, {-3.5F, 0, 1.5F});
  expect(ints_ / 0.5, DType::f32, {-14, 0, 6});
  expect(div(ints_.to(DType::i32), ints_.to(DType::i32).slice(0, 2, 3)), DType::f32, {-7.0F / 3, 0, 1});
  const Floats by_zero = div(ints_, Tensor::zeros({}, device_, DType::i64)).to_vector<float>();
  EXPECT_EQ(by_zero[0], -kInf);
  EXPECT_NE(by_zero[1], by_zero[1]);
  EXPECT_EQ(by_zero[2], kInf);
}

TEST_F(Promotion, AWholeNumberKeepsTheDtype) {
  expect(ints_ + 1, DType::i64, {-6, 1, 4});
  expect(ints_ - 1, DType::i64, {-8, -1, 2});
  expect(2 * ints_, DType::i64, {-14, 0, 6});
  expect(pow(ints_, 2), DType::i64, {49, 0, 9});
  expect(clamp(ints_, -1, 2), DType::i64, {-1, 0, 2});
  expect(ints_.to(DType::i32) - std::size_t{1}, DType::i32, {-8, -1, 2});
  expect(Tensor::from_data(std::vector<std::uint8_t>{255, 1}, {2}, device_) + 1, DType::u8, {0, 2});
}

TEST_F(Promotion, ADoubleMakesFloats) {
  expect(ints_ + 1.0, DType::f32, {-6, 1, 4});
  expect(ints_ - 0.5, DType::f32, {-7.5F, -0.5F, 2.5F});
  expect(0.5 * ints_, DType::f32, {-3.5F, 0, 1.5F});
  expect(pow(ints_, 2.0), DType::f32, {49, 0, 9});
  expect(clamp(ints_, -0.5, 2), DType::f32, {-0.5F, 0, 2});
}

TEST_F(Promotion, EveryDigitOfAWholeNumberCounts) {
  const std::int64_t large = (std::int64_t{1} << 53) + 1;
  const Tensor two = Tensor::from_data(Ints{large, 1}, {2}, device_);
  EXPECT_EQ(add(two, large).to_vector<std::int64_t>(), (Ints{2 * large, large + 1}));
  EXPECT_EQ(mul(two, 2).to_vector<std::int64_t>(), (Ints{2 * large, 2}));
}

TEST_F(Promotion, FloatsStayWhatTheyAre) {
  for (const DType dtype : {DType::bf16, DType::f32, DType::f64}) {
    const Tensor x = Tensor::from_data(Floats{3, -1}, {2}, device_).to(dtype);
    for (const Tensor& y : {x + 1, x - 0.5, x * 2, x / 2, pow(x, 2), pow(x, 2.0)})
      EXPECT_EQ(y.dtype(), dtype);
    expect(x / 4, dtype, {0.75F, -0.25F});
  }
}

TEST_F(Promotion, RefusesANegativePowerOfIntegers) { EXPECT_THROW(pow(ints_, -1), UsageError); }

}  // namespace
}  // namespace dtrain
