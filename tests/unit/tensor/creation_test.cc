// Tensors like others, ranges, unit matrices, random content and borrowed arrays.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "runtime/base/error.h"
#include "runtime/tensor/creation.h"
#include "runtime/tensor/tensor.h"

namespace dtrain {
namespace {

class CreationTest : public testing::Test {
 protected:
  std::shared_ptr<Device> device_ = make_device("cpu");
};

TEST_F(CreationTest, LikeAnother) {
  const Tensor model = Tensor::zeros({2, 3}, device_, DType::f64).transpose(0, 1);
  const Tensor ones = Tensor::ones_like(model);
  EXPECT_EQ(ones.describe(), "float64 [3, 2]");
  EXPECT_TRUE(ones.is_contiguous());
  EXPECT_EQ(ones.to_vector<double>(), (std::vector<double>(6, 1.0)));
  EXPECT_EQ(Tensor::zeros_like(model, DType::i64).describe(), "int64 [3, 2]");
  EXPECT_EQ(Tensor::full_like(model, 2.5).to_vector<double>(), (std::vector<double>(6, 2.5)));
}

TEST_F(CreationTest, Ranges) {
  EXPECT_EQ(Tensor::arange(4, device_).to_vector<std::int64_t>(), (std::vector<std::int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(Tensor::arange(3, 0, -1, device_, DType::f32).to_vector<float>(), (std::vector<float>{3, 2, 1}));
  EXPECT_EQ(Tensor::arange(0, device_).numel(), 0);
  EXPECT_THROW(Tensor::arange(0, 1, 0, device_), UsageError);
  EXPECT_THROW(Tensor::arange(0, 1, -1, device_), UsageError);
}

TEST_F(CreationTest, UnitMatrices) {
  EXPECT_EQ(Tensor::eye(2, 3, device_).to_vector<float>(), (std::vector<float>{1, 0, 0, 0, 1, 0}));
  EXPECT_EQ(Tensor::eye(3, 2, device_, DType::i64).to_vector<std::int64_t>(),
            (std::vector<std::int64_t>{1, 0, 0, 1, 0, 0}));
}

TEST_F(CreationTest, BorrowedArraysAreUsedInPlace) {
  const auto values = std::make_shared<std::vector<float>>(6, 1.0F);
  std::weak_ptr<std::vector<float>> watched = values;
  Tensor tensor = Tensor::borrow(std::span<float>(*values), {2, 3}, device_, values);
  tensor.fill(4);
  EXPECT_EQ((*values)[5], 4);
  EXPECT_EQ(tensor.view().data, values->data());
  const Tensor row = tensor.select(0, 1);
  tensor = Tensor();
  EXPECT_EQ(values.use_count(), 2);  // kept by the view
  EXPECT_THROW(Tensor::borrow(std::span<float>(*values), {5}, device_, values), UsageError);
}

TEST_F(CreationTest, RandomContentContinuesTheStream) {
  Generator one(3), two(3);
  Tensor parts = Tensor::zeros({4, 5}, device_);
  parts.fill_uniform(one, -1, 1);
  EXPECT_EQ(parts.to_vector<float>(), Tensor::rand({4, 5}, two, device_, -1, 1).to_vector<float>());
  EXPECT_EQ(one.next32(), two.next32());
  Tensor strided = Tensor::zeros({5, 4}, device_).transpose(0, 1);
  Generator three(3);
  strided.fill_uniform(three, -1, 1);  // in the order of its elements, not of its memory
  EXPECT_EQ(strided.to_vector<float>(), parts.to_vector<float>());
  Tensor whole = Tensor::zeros({4}, device_, DType::i64);
  EXPECT_THROW(whole.fill_normal(one), UsageError);
}

TEST_F(CreationTest, NormalNumbersHaveTheirMoments) {
  Generator generator(1);
  for (const DType dtype : {DType::f32, DType::f64}) {
    const auto values = Tensor::randn({20001}, generator, device_, dtype).to_vector<double>();
    const double mean = std::accumulate(values.begin(), values.end(), 0.0) / 20001;
    double squares = 0;
    for (const double value : values) squares += value * value;
    EXPECT_NEAR(mean, 0, 0.04);  // five standard errors
    EXPECT_NEAR(squares / 20001, 1, 0.06);
  }
}

/// Doubles do not hold every whole number beyond 2^53.
TEST_F(CreationTest, LargeWholeNumbersAreExact) {
  constexpr std::int64_t kOdd = (std::int64_t{1} << 53U) + 1,
                         kMost = std::numeric_limits<std::int64_t>::max();
  using Whole = std::vector<std::int64_t>;
  Tensor x = Tensor::zeros({3, 2}, device_, DType::i64);
  x.select(1, 1).fill(kOdd);
  EXPECT_EQ(x.to_vector<std::int64_t>(), (Whole{0, kOdd, 0, kOdd, 0, kOdd}));
  EXPECT_EQ(arange(kOdd, kOdd + 2).to_vector<std::int64_t>(), (Whole{kOdd, kOdd + 1}));
  EXPECT_EQ(arange(kMost, kMost - 4, -2).to_vector<std::int64_t>(), (Whole{kMost, kMost - 2}));
  EXPECT_EQ(arange(-kMost, kMost, kMost).to_vector<std::int64_t>(), (Whole{-kMost, 0}));
  EXPECT_EQ(arange(kOdd, kOdd).numel(), 0);
  EXPECT_THROW(arange(kOdd, kOdd + 1, -1), UsageError);
  EXPECT_THROW(arange(kOdd, kOdd + 1, 0), UsageError);
  EXPECT_EQ(full({}, std::numeric_limits<std::uint64_t>::max()).to_vector<float>(),
            std::vector<float>{0x1p64F});  // no int64 holds it
}

}  // namespace
}  // namespace dtrain
