// Digits that must survive large values: logarithms of probabilities beside large logits, variances beside
// outliers and a mean far from zero. Measured against the same formula in float64.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "tests/unit/device/array.h"

namespace dtrain {
namespace {

using test::Array;
using test::Layout;

TEST(LogSoftmax, OfEqualLargeLogitsIsUniform) {
  const auto device = make_device("cpu");
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    Array x({1, 3}, dtype), y({1, 3}, dtype);
    x.set({1e8, 1e8, 1e8});
    device->kernels().log_softmax(x, y);
    for (const double value : y.values())
      EXPECT_NEAR(value, -std::log(3.0), dtype == DType::bf16 ? 4e-3 : 1e-7);
  }
}

/// Logits of 1000 have 14 digits of binary fraction left; the result keeps them.
TEST(LogSoftmax, KeepsTheDigitsOfDifferences) {
  const auto device = make_device("cpu");
  Generator generator(3);
  Array x({8, 50}), y({8, 50}), exact({8, 50}, DType::f64), losses({8}), target({8}, DType::i64);
  std::vector<double> values = Array::random({8, 50}, generator).values();
  for (double& value : values) value += 1000;
  x.set(values);
  device->kernels().log_softmax(x.as(DType::f64), exact);
  device->kernels().log_softmax(x, y);
  test::expect_near(y.values(), exact.values(), 1e-6, "log_softmax");
  device->kernels().cross_entropy(x, target, std::nullopt, y, losses);
  for (std::size_t row = 0; row < 8; ++row)
    EXPECT_NEAR(losses.values()[row], -exact.values()[row * 50], 1e-6);
}

struct Data {
  const char* name;
  double mean, first, deviation;
};

class Variance : public testing::TestWithParam<Data> {};

/// The unbiased variance of what is stored, in two passes.
double exact_variance(const std::vector<double>& values) {
  double mean = 0, squares = 0;
  for (const double value : values) mean += value / static_cast<double>(values.size());
  for (const double value : values) squares += (value - mean) * (value - mean);
  return squares / static_cast<double>(values.size() - 1);
}

TEST_P(Variance, IsExactWhateverTheFirstPixelIs) {
  const Data& data = GetParam();
  const auto device = make_device("cpu");
  const Dims shape{7, 1, 40, 40};
  Generator generator(8);
  Array x(shape, DType::f32, Layout::channels_last);
  std::vector<double> values = Array::random(shape, generator).values();
  for (double& value : values) value = data.mean + data.deviation * value;
  values[0] = data.first;
  x.set(values);
  const Array y(shape, DType::f32, Layout::channels_last), mean({1}), inv_std({1}), running_mean({1}),
      running_var({1});
  device->kernels().batch_norm({.eps = 0, .momentum = 1}, {{}, {}, running_mean, running_var, mean, inv_std},
                               x, {}, y);
  const double exact = exact_variance(x.values());
  EXPECT_NEAR(running_var.values()[0] / exact, 1, 5e-7);
}

INSTANTIATE_TEST_SUITE_P(Data, Variance,
                         testing::Values(Data{"plain", 0, 0.5, 1}, Data{"outlier", 0, 90, 1},
                                         Data{"far", 100, 100, 1}, Data{"far_outlier", 1000, 0, 1},
                                         Data{"steps", 10, -10, 0.01}),
                         [](const auto& test) { return std::string(test.param.name); });

/// Images that differ more from each other than within: the pivot moves from one to the next.
TEST(BatchVariance, OfImagesFarApart) {
  const auto device = make_device("cpu");
  const Dims shape{6, 2, 16, 16};
  Generator generator(9);
  Array x(shape, DType::f32, Layout::channels_last);
  std::vector<double> values = Array::random(shape, generator).values();
  const std::size_t image = values.size() / 6;
  for (std::size_t i = 0; i < values.size(); ++i) values[i] += i / image % 2 == 0 ? 500.0 : -500.0;
  x.set(values);
  const Array y(shape, DType::f32, Layout::channels_last), mean({2}), inv_std({2}), running_mean({2}),
      running_var({2});
  device->kernels().batch_norm({.eps = 0, .momentum = 1}, {{}, {}, running_mean, running_var, mean, inv_std},
                               x, {}, y);
  std::vector<double> channel;
  const auto stored = x.values();
  for (std::size_t i = 0; i < stored.size(); ++i) {
    if (i / 256 % 2 == 1) channel.push_back(stored[i]);
  }
  EXPECT_NEAR(running_var.values()[1] / exact_variance(channel), 1, 5e-7);
}

}  // namespace
}  // namespace dtrain
