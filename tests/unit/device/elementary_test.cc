// exp, expm1, log, log1p, tanh, erf, sin, cos, sigmoid and gelu of f32 against float64, over numbers of every
// exponent and sign: bounds in units in the last place, and what is special. docs/decisions/061 has PyTorch's
// errors beside these.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tests/unit/device/array.h"

namespace dtrain {
namespace {

using test::Array;

/// Every 4093rd float by its bits: 250 of each exponent or more, NaN and infinities among them, and numbers
/// that matter.
const std::vector<float>& inputs() {
  static const std::vector<float> kAll = [] {
    std::vector<float> all = {0.0F,      -0.0F,      1.0F,       -1.0F,      0.5F,        -0.5F,
                              0x1p-126F, -0x1p-126F, 0x1p-149F,  -0x1p-149F, 88.72283F,   88.72284F,
                              -103.97F,  -103.98F,   -87.33655F, 0.625F,     0.70710677F, 0.7071068F};
    for (const float extreme : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::max(),
                                std::numeric_limits<float>::quiet_NaN()}) {
      all.push_back(extreme);
      all.push_back(-extreme);
    }
    for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32U); bits += 4093) {
      all.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
    }
    return all;
  }();
  return kAll;
}

std::vector<float> results(UnaryOp op) {
  const auto count = static_cast<std::int64_t>(inputs().size());
  const Array in({count}), out({count});
  std::memcpy(in.view().data, inputs().data(), inputs().size() * sizeof(float));
  make_device("cpu")->kernels().unary(op, in, out);
  const float* const data = out.view().as<const float>();
  return {data, data + count};
}

/// A float's last place at the size of `exact`.
double last_place(double exact) {
  int exponent = 0;
  std::frexp(exact, &exponent);
  return std::ldexp(1.0, std::max(exponent, -125) - 24);
}

struct Function {
  const char* name;
  UnaryOp op;
  std::function<double(double)> exact;
  double bound;
};

class Elementary : public testing::TestWithParam<Function> {};

TEST_P(Elementary, IsWithinItsBoundOfFloat64) {
  const Function& function = GetParam();
  const std::vector<float> got = results(function.op);
  double worst = 0;
  float worst_at = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const float x = inputs()[i];
    const double exact = function.exact(static_cast<double>(x));
    const auto rounded = static_cast<float>(exact);
    if (std::isnan(rounded)) {
      ASSERT_TRUE(std::isnan(got[i])) << function.name << '(' << x << ") = " << got[i];
    } else if (std::isinf(rounded) || exact == 0) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(got[i]), std::bit_cast<std::uint32_t>(rounded))
          << function.name << '(' << x << ") = " << got[i] << ", expected " << rounded;
    } else {
      const double error = std::abs(static_cast<double>(got[i]) - exact) / last_place(exact);
      if (!(error <= worst)) worst = error, worst_at = x;
    }
  }
  EXPECT_LE(worst, function.bound) << function.name << '(' << worst_at << ')';
}

INSTANTIATE_TEST_SUITE_P(
    Functions, Elementary,
    testing::Values(Function{"exp", UnaryOp::exp, [](double x) { return std::exp(x); }, 0.8},
                    Function{"log", UnaryOp::log, [](double x) { return std::log(x); }, 0.85},
                    Function{"log1p", UnaryOp::log1p, [](double x) { return std::log1p(x); }, 0.85},
                    Function{"tanh", UnaryOp::tanh, [](double x) { return std::tanh(x); }, 1.05},
                    Function{"expm1", UnaryOp::expm1, [](double x) { return std::expm1(x); }, 1.1},
                    Function{"erf", UnaryOp::erf, [](double x) { return std::erf(x); }, 6},
                    Function{"sin", UnaryOp::sin, [](double x) { return std::sin(x); }, 0.501},
                    Function{"cos", UnaryOp::cos, [](double x) { return std::cos(x); }, 0.501}),
    [](const auto& test) { return std::string(test.param.name); });

/// 1 + e^-x is infinite where the result would be subnormal, there it is 0, as PyTorch's is.
TEST(ElementaryRoundHalf, IsWhatConversionsGive) {
  const std::vector<float>& all = inputs();
  const auto count = static_cast<std::int64_t>(all.size());
  Array x({count}), y({count});
  std::copy(all.begin(), all.end(), x.view().as<float>());
  make_device("cpu")->kernels().unary(UnaryOp::round_half, x, y);
  for (std::int64_t i = 0; i < count; ++i) {
    const float from = all[static_cast<std::size_t>(i)], got = y.view().as<const float>()[i];
    if (std::isnan(from)) {
      EXPECT_TRUE(std::isnan(got));
      continue;
    }
    const auto expected = static_cast<float>(Float16(from));
    ASSERT_EQ(std::bit_cast<std::uint32_t>(got), std::bit_cast<std::uint32_t>(expected)) << from;
  }
}

TEST(ElementarySigmoid, IsWithinItsBoundOfFloat64) {
  const std::vector<float> got = results(UnaryOp::sigmoid);
  for (std::size_t i = 0; i < got.size(); ++i) {
    const auto x = static_cast<double>(inputs()[i]), exact = 1 / (1 + std::exp(-x));
    if (std::isnan(x)) {
      ASSERT_TRUE(std::isnan(got[i]));
    } else {
      ASSERT_NEAR(got[i], exact, std::max(2.5 * last_place(exact), 0x1p-126)) << "sigmoid(" << x << ')';
    }
  }
}

/// In last places of x: where gelu is far below x, on the left, the digits are those of 1 + erf. PyTorch is 5
/// off.
TEST(ElementaryGelu, IsWithinItsBoundOfFloat64) {
  const std::vector<float> got = results(UnaryOp::gelu);
  for (std::size_t i = 0; i < got.size(); ++i) {
    const auto x = static_cast<double>(inputs()[i]), exact = x * 0.5 * std::erfc(-x / std::sqrt(2.0));
    if (std::isnan(x) || x == -std::numeric_limits<double>::infinity()) {
      ASSERT_TRUE(std::isnan(got[i])) << x;
    } else if (std::isinf(x)) {
      ASSERT_EQ(got[i], exact);
    } else {
      ASSERT_NEAR(got[i], exact, 3.5 * last_place(x)) << "gelu(" << x << ')';
    }
  }
}

}  // namespace
}  // namespace dtrain
