// Integers beside numbers, and their quotients: the dtypes and values that PyTorch gives.
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "runtime/autograd/ops.h"
#include "runtime/autograd/ops/activations.h"
#include "runtime/autograd/ops/indexing.h"
#include "runtime/autograd/ops/operators.h"
#include "runtime/autograd/ops/reductions.h"
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

// torch.result_type of each pair; two different floating dtypes are refused.
TEST_F(Promotion, KindsAndWidthsDecide) {
  const auto of = [&](DType dtype) { return Tensor::from_data(Ints{0, 1, 100}, {3}, device_).to(dtype); };
  const struct {
    DType a, b, result;
  } cases[] = {
      {DType::boolean, DType::boolean, DType::boolean},
      {DType::boolean, DType::u8, DType::u8},
      {DType::u8, DType::i8, DType::i16},
      {DType::u8, DType::i16, DType::i16},
      {DType::i8, DType::i32, DType::i32},
      {DType::i32, DType::i64, DType::i64},
      {DType::i64, DType::f32, DType::f32},
      {DType::i64, DType::bf16, DType::bf16},
      {DType::f16, DType::i32, DType::f16},
      {DType::f16, DType::f16, DType::f16},
      {DType::boolean, DType::f64, DType::f64},
      {DType::i16, DType::i16, DType::i16},
  };
  for (const auto& [left, right, result] : cases) {
    for (const auto& [a, b] : {std::pair{of(left), of(right)}, {of(right), of(left)}}) {
      const std::string both = a.describe() + " and " + b.describe();
      EXPECT_EQ((a + b).dtype(), result) << both;
      EXPECT_EQ((a * b).dtype(), result) << both;
      EXPECT_EQ(maximum(a, b).dtype(), result) << both;
      EXPECT_EQ(where(a > 0, a, b).dtype(), result) << both;
      EXPECT_EQ((a == b).dtype(), DType::boolean) << both;
      EXPECT_EQ((a / b).dtype(), is_floating(result) ? result : DType::f32) << both;
      EXPECT_EQ((a + b).to_vector<double>()[0], 0) << both;
    }
  }
  EXPECT_THROW(of(DType::f32) + of(DType::bf16), UsageError);
  EXPECT_THROW(of(DType::f16) * of(DType::f32), UsageError);
  EXPECT_THROW(of(DType::boolean) - of(DType::boolean), UsageError);
  // One without dimensions gives way within its kind.
  const Tensor two = Tensor::full({}, 2, device_, DType::i64);
  EXPECT_EQ((of(DType::i8) + two).dtype(), DType::i8);
  EXPECT_EQ((two * of(DType::boolean)).dtype(), DType::i64);
  EXPECT_EQ((of(DType::i32) + two.to(DType::f32)).dtype(), DType::f32);
}

TEST_F(Promotion, SmallIntegersWrapAsTheirWidthSays) {
  const auto of = [&](DType dtype, Ints values) { return Tensor::from_data(values, {2}, device_).to(dtype); };
  expect(of(DType::u8, {250, 3}) + of(DType::u8, {10, 4}), DType::u8, {4, 7});
  expect(of(DType::u8, {1, 3}) - of(DType::u8, {2, 1}), DType::u8, {255, 2});
  expect(of(DType::i8, {100, -100}) * of(DType::i8, {2, 2}), DType::i8, {-56, 56});
  expect(of(DType::i16, {32767, 5}) + of(DType::i16, {1, 1}), DType::i16, {-32768, 6});
  expect(of(DType::boolean, {1, 0}) + of(DType::boolean, {1, 1}), DType::boolean, {1, 1});
  expect(of(DType::boolean, {1, 0}) + 1, DType::i64, {2, 1});
  expect(-of(DType::i8, {5, -3}), DType::i8, {-5, 3});
  expect(abs(of(DType::i32, {5, -3})), DType::i32, {5, 3});
  expect(of(DType::i32, {7, -3}).max(), DType::i32, {7});
  expect(of(DType::u8, {200, 100}).cumsum(0), DType::i64, {200, 300});
  expect(matmul(of(DType::i32, {7, -3}), of(DType::i32, {2, 1})), DType::i32, {11});
  expect(exp(of(DType::i64, {0, 0})), DType::f32, {1, 1});
  expect(sqrt(of(DType::u8, {9, 16})), DType::f32, {3, 4});
}

// Each result is that of float32, rounded.
TEST_F(Promotion, Float16IsComputedInFloat32) {
  const Tensor a = Tensor::from_data(Floats{0.1F, 2, 300}, {3}, device_).to(DType::f16);
  const Tensor b = Tensor::from_data(Floats{3, 0.7F, 300}, {3}, device_).to(DType::f16);
  const auto rounded = [](const Tensor& x) { return x.to(DType::f16).to_vector<float>(); };
  const Tensor x = a.to(DType::f32), y = b.to(DType::f32);
  for (const auto& [half, full] : {std::pair{a + b, x + y},
                                   {a * b, x * y},
                                   {a / b, x / y},
                                   {a - 1.5, x - 1.5},
                                   {exp(a * 0.01), exp((x * 0.01).to(DType::f16).to(DType::f32))},
                                   {a.sum(), x.sum()},
                                   {a.mean(), x.mean()},
                                   {matmul(a, b), matmul(x, y)},
                                   {clamp(a, 1, 2), clamp(x, 1, 2)},
                                   {-a, -x},
                                   {relu(a), relu(x)}}) {
    EXPECT_EQ(half.dtype(), DType::f16);
    EXPECT_EQ(half.to_vector<float>(), rounded(full));
  }
  EXPECT_EQ((a * b).to_vector<float>()[2], kInf) << "65,504 is the largest";
  Tensor leaf = a.detach().clone();
  leaf.set_requires_grad();
  (leaf * b).sum().backward();
  EXPECT_EQ(leaf.grad().dtype(), DType::f16);
  EXPECT_EQ(leaf.grad().to_vector<float>(), b.to_vector<float>());
}

// Gradients go to the floating operand alone, in its dtype.
TEST_F(Promotion, IntegersMayWeighWhatIsLearned) {
  Tensor w = Tensor::from_data(Floats{1, 2, 3}, {3}, device_);
  w.set_requires_grad();
  (w * ints_ + ints_.to(DType::i8)).sum().backward();
  expect(w.grad(), DType::f32, {-7, 0, 3});
}

TEST_F(Promotion, RefusesANegativePowerOfIntegers) { EXPECT_THROW(pow(ints_, -1), UsageError); }

}  // namespace
}  // namespace dtrain
