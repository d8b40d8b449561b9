// Shapes at the edges: what cannot be counted is refused before anything is allocated, dimensions and steps
// are taken in 64 bits, and operands of two devices do not meet.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "runtime/base/error.h"
#include "runtime/tensor/shape.h"
#include "runtime/tensor/tensor.h"
#include "tests/support/slowness.h"

namespace dtrain {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t k40 = std::int64_t{1} << 40, k62 = std::int64_t{1} << 62;

class Extents : public testing::Test {
 protected:
  std::shared_ptr<Device> device_ = make_device("cpu");
  Tensor ones(const Dims& shape) { return Tensor::ones(shape, device_); }
};

TEST_F(Extents, TooLargeToCountAreRefused) {
  for (const Dims& shape : {Dims{k62}, Dims{std::int64_t{1} << 32, std::int64_t{1} << 32}, Dims{0, k62, k62},
                            Dims{k62, 0, k62}, Dims{2, -3}}) {
    EXPECT_THROW(ones(shape), UsageError) << shape.to_string();
  }
  EXPECT_THROW(Tensor::borrow({nullptr, DType::u8, {k62, 2}, {2, 1}}, device_, nullptr), UsageError);
  Generator generator(1);
  EXPECT_THROW(Tensor::rand({k62}, generator, device_), UsageError);
  EXPECT_THROW(ones({1}).expand({k62, 4}), UsageError);
  EXPECT_THROW(Tensor::zeros({0}, device_).reshape({0, k62, k62}), UsageError);
  EXPECT_THROW(Tensor::zeros({0}, device_).view({k62, 0, k62}), UsageError);
  EXPECT_THROW(ones({4}).reshape({k62, k62, -1}), UsageError);
}

TEST_F(Extents, MemoryThatThereIsNotIsADeviceError) {
  if (!test::kNewThrows) GTEST_SKIP() << "a sanitizer's allocator ends the program";
  Generator generator(1);
  EXPECT_THROW(ones({k40, 1024}), DeviceError);
  EXPECT_THROW(Tensor::rand({k40, 1024}, generator, device_), DeviceError);
  EXPECT_THROW(ones({1}).expand({k40, 1024, 1024}).to_vector<double>(), DeviceError);
  EXPECT_THROW(ones({1}).expand({k40, 1024}).contiguous(), DeviceError);
}

TEST_F(Extents, ExpandKeepsMinusOneAndRefusesOtherNegatives) {
  EXPECT_EQ(ones({2, 1}).expand({-1, 3}).shape(), (Dims{2, 3}));
  EXPECT_EQ(ones({2, 1}).expand({4, -1, -1}).shape(), (Dims{4, 2, 1}));
  EXPECT_EQ(ones({1}).expand({0}).shape(), (Dims{0}));
  EXPECT_THROW(ones({2, 1}).expand({-1, 2, 3}), UsageError);
  EXPECT_THROW(ones({1}).expand({-5}), UsageError);
  EXPECT_THROW(ones({2, 1}).expand({2, -2}), UsageError);
}

TEST_F(Extents, DimensionsAndStepsAreTakenIn64Bits) {
  constexpr std::int64_t kWraps = std::int64_t{1} << 32;
  EXPECT_THROW(normalize_dim(kWraps, 2, "test"), UsageError);
  EXPECT_THROW(normalize_dim(-kWraps - 1, 2, "test"), UsageError);
  EXPECT_THROW(ones({2, 3}).permute({kWraps + 1, 0}), UsageError);
  EXPECT_EQ(ones({5}).slice(0, 1, 5, kMost).shape(), (Dims{1}));
  EXPECT_EQ(ones({5}).slice(0, -kMost, kMost, kMost - 1).shape(), (Dims{1}));
  EXPECT_EQ(ones({5}).slice(0, 3, 3, kMost).numel(), 0);
}

TEST_F(Extents, OperandsOfTwoDevicesAreRefused) {
  const auto other = make_device("cpu");
  const Tensor index = Tensor::zeros({1}, other, DType::i64), foreign = Tensor::ones({2}, other);
  Tensor target = ones({2});
  EXPECT_THROW(target.index_select(0, index), UsageError);
  EXPECT_THROW(target.copy_from(foreign), UsageError);
  EXPECT_THROW(target.add_in_place(foreign), UsageError);
  target.copy_from(foreign.to(device_));
  EXPECT_EQ(target.to_vector<float>(), (std::vector<float>{1, 1}));
}

TEST_F(Extents, ScalingKeepsTheSignOfZero) {
  Tensor zero = Tensor::full({2}, -0.0, device_);
  zero.scale_in_place(3);
  EXPECT_TRUE(std::signbit(zero.to_vector<float>()[0]));
}

}  // namespace
}  // namespace dtrain
