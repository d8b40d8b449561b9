// Layer and RMS norm against a float64 reference, in every dtype and with what may be left out.
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/base/error.h"
#include "tests/unit/device/array.h"

namespace dtrain {
namespace {

using test::Array;

class RowNorm : public testing::TestWithParam<std::int64_t> {
 protected:
  std::shared_ptr<Device> device_ = make_device("cpu");
};

/// Forward and gradients as the formulas have them.
struct Reference {
  std::vector<double> output, grad_input, grad_weight, grad_bias;
};

Reference reference_of(const RowNormRule& rule, std::int64_t rows, std::int64_t count,
                       const std::vector<double>& x, const std::vector<double>& w,
                       const std::vector<double>& b, const std::vector<double>& grad) {
  const auto n = static_cast<std::size_t>(count);
  Reference result{{}, {}, std::vector<double>(n), std::vector<double>(n)};
  for (std::size_t r = 0; r < static_cast<std::size_t>(rows); ++r) {
    const double* const row = x.data() + r * n;
    const double* const g = grad.data() + r * n;
    double mean = 0, variance = 0, level = 0, along = 0;
    for (std::size_t i = 0; rule.centered && i < n; ++i) mean += row[i] / static_cast<double>(n);
    for (std::size_t i = 0; i < n; ++i)
      variance += (row[i] - mean) * (row[i] - mean) / static_cast<double>(n);
    const double scale = 1 / std::sqrt(variance + rule.eps);
    for (std::size_t i = 0; i < n; ++i) {
      const double y = (row[i] - mean) * scale;
      result.output.push_back(y * w[i] + b[i]);
      result.grad_weight[i] += g[i] * y;
      result.grad_bias[i] += g[i];
      level += rule.centered ? g[i] * w[i] / static_cast<double>(n) : 0;
      along += g[i] * w[i] * y / static_cast<double>(n);
    }
    for (std::size_t i = 0; i < n; ++i) {
      result.grad_input.push_back((g[i] * w[i] - level - (row[i] - mean) * scale * along) * scale);
    }
  }
  return result;
}

void expect_near(const Array& got, const std::vector<double>& expected, double tolerance) {
  const auto values = got.values();
  ASSERT_EQ(values.size(), expected.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_NEAR(values[i], expected[i], tolerance * std::max(1.0, std::abs(expected[i]))) << i;
  }
}

TEST_P(RowNorm, FollowsItsFormula) {
  const std::int64_t rows = 37, count = GetParam();
  Generator generator(3);
  for (const bool centered : {true, false}) {
    const RowNormRule rule{1e-3, centered};
    const Array x = Array::random({rows, count}, generator), grad = Array::random({rows, count}, generator);
    const Array w = Array::random({count}, generator), b = Array::random({count}, generator);
    const Reference expected =
        reference_of(rule, rows, count, x.values(), w.values(), b.values(), grad.values());
    const Array y({rows, count}), mean({rows}), inv_std({rows});
    const View means = centered ? View(mean) : View{};
    Kernels& kernels = device_->kernels();
    kernels.row_norm(rule, x, w, b, means, inv_std, y);
    expect_near(y, expected.output, 1e-5);
    const Array to_x({rows, count}), to_w({count}), to_b({count});
    kernels.row_norm_backward(x, w, means, inv_std, grad, to_x, to_w, to_b);
    expect_near(to_x, expected.grad_input, 2e-5);
    expect_near(to_w, expected.grad_weight, 1e-5);
    expect_near(to_b, expected.grad_bias, 1e-5);
    // What is left out changes nothing else.
    const Array alone({count});
    kernels.row_norm_backward(x, w, means, inv_std, grad, {}, {}, alone);
    EXPECT_EQ(alone.values(), to_b.values());
  }
}

INSTANTIATE_TEST_SUITE_P(, RowNorm, testing::Values(1, 5, 16, 33, 128));

TEST(RowNormErrors, NameTheArgument) {
  const auto device = make_device("cpu");
  const Array x({2, 3}), y({2, 3}), wrong({2}), stat({2});
  EXPECT_THROW(device->kernels().row_norm({}, x, wrong, {}, stat, stat, y), UsageError);
  EXPECT_THROW(device->kernels().row_norm({}, x, {}, {}, stat, {}, y), UsageError);
  EXPECT_THROW(device->kernels().row_norm({}, x, {}, {}, stat, stat, stat), UsageError);
}

}  // namespace
}  // namespace dtrain
