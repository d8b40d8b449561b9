// Batch normalisation of a batch that is cut into parts, statistics that rounding could lose, and row norm's
// gradients. tests/operations has its numbers in every layout and dtype.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "runtime/base/error.h"
#include "tests/unit/device/array.h"

namespace dtrain {
namespace {

using test::Array;
using test::Layout;

Dims shape_of(std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) { return {n, c, h, w}; }

struct Case {
  const char* name;
  Dims shape;
  DType dtype;
  Layout layout;
  bool relu, residual;
};

const Case kCases[] = {
    {"plain", {3, 19, 5, 4}, DType::f32, Layout::channels_last, false, false},
    {"relu", {2, 64, 9, 9}, DType::f32, Layout::channels_last, true, false},
    {"shortcut", {3, 33, 7, 5}, DType::f32, Layout::channels_last, true, true},
    {"only_shortcut", {3, 16, 3, 5}, DType::f32, Layout::channels_last, false, true},
    {"contiguous", {3, 7, 5, 4}, DType::f32, Layout::contiguous, true, true},
    {"f64", {3, 7, 5, 4}, DType::f64, Layout::channels_last, true, true},
    {"bf16", {4, 40, 6, 5}, DType::bf16, Layout::channels_last, true, true},
    {"bf16_contiguous", {4, 5, 6, 5}, DType::bf16, Layout::contiguous, true, false},
    {"one_pixel_each", {5, 3, 1, 1}, DType::f32, Layout::channels_last, true, false},
    {"many_stretches", {4, 3, 17, 13}, DType::f32, Layout::channels_last, true, true},
};

constexpr BatchNormRule kRule{.eps = 1e-5, .momentum = 0.1, .activation = Activation::none};

/// Everything a call takes and gives, and the same by the definition.
class BatchNorm : public testing::TestWithParam<Case> {
 protected:
  BatchNorm()
      : case_(GetParam()),
        channel_dtype_(case_.dtype == DType::f64 ? DType::f64 : DType::f32),
        count_(static_cast<double>(case_.shape[0] * case_.shape[2] * case_.shape[3])) {
    rule_ = kRule;
    if (case_.relu) rule_.activation = Activation::relu;
  }

  Array activation() { return Array::random(case_.shape, generator_, case_.dtype, case_.layout); }
  Array empty() const { return Array(case_.shape, case_.dtype, case_.layout); }
  Array channel() { return Array::random({case_.shape[1]}, generator_, channel_dtype_); }
  double tolerance(double size) const {
    const double eps = case_.dtype == DType::f64 ? 1e-14 : case_.dtype == DType::bf16 ? 1.0 / 128 : 4e-6;
    return eps * size;
  }

  Case case_;
  DType channel_dtype_;
  double count_;
  BatchNormRule rule_;
  Generator generator_{7};
  std::shared_ptr<Device> device_ = make_device("cpu");
};

/// Two parts, exchanged as ranks would, are one batch. A third part is empty.
TEST_P(BatchNorm, PartsCombineToTheWhole) {
  const std::int64_t channels = case_.shape[1], length = 2 * channels + 1;
  const std::int64_t total = case_.shape[0];
  const Array x = activation(), residual = activation(), dy = activation(), weight = channel(),
              bias = channel();
  const Array running_mean = channel(), running_var = channel();
  const Array mean(Dims{channels}, channel_dtype_), inv_std(Dims{channels}, channel_dtype_);
  const Array other_mean = running_mean.as(channel_dtype_), other_var = running_var.as(channel_dtype_);
  const Array part_mean(Dims{channels}, channel_dtype_), part_inv_std(Dims{channels}, channel_dtype_);
  const BatchNormChannels whole{weight, bias, running_mean, running_var, mean, inv_std};
  const BatchNormChannels parted{weight, bias, other_mean, other_var, part_mean, part_inv_std};
  const Array y = empty(), dx = empty(), dr = empty(), part_y = empty(), part_dx = empty(), part_dr = empty();
  const Array dw(Dims{channels}, channel_dtype_), db(Dims{channels}, channel_dtype_);
  const View none;
  Kernels& kernels = device_->kernels();
  kernels.batch_norm(rule_, whole, x, case_.residual ? residual.view() : none, y);
  kernels.batch_norm_backward(rule_, whole, x, y, dy, dx, case_.residual ? dr.view() : none, dw, db);

  const Array moments(Dims{3, length}, DType::f64), sums(Dims{2, length}, DType::f64),
      all_sums(Dims{length}, DType::f64);
  const auto rows = [](const View& of, std::int64_t begin, std::int64_t end) {
    View part = of;
    part.data = of.as<std::byte>() + begin * of.strides[0] * static_cast<std::int64_t>(size_of(of.dtype));
    part.shape[0] = end - begin;
    return part;
  };
  const auto row = [&](const View& of, std::int64_t index) {
    View part = rows(of, index, index + 1);
    part.shape = {length};
    part.strides = {1};
    return part;
  };
  const std::int64_t cuts[] = {0, 1, total, total};
  const auto part = [&](const View& of, int index) { return rows(of, cuts[index], cuts[index + 1]); };
  for (int i = 0; i < 3; ++i) kernels.batch_norm_moments(part(x, i), row(moments, i));
  kernels.batch_norm_combine(rule_, parted, moments);
  std::vector<double> part_dw(static_cast<std::size_t>(channels), 0), part_db = part_dw;
  for (int i = 0; i < 2; ++i) {
    kernels.batch_norm_apply(rule_, parted, part(x, i), case_.residual ? part(residual, i) : none,
                             part(part_y, i));
    kernels.batch_norm_grad_sums(parted, part(x, i), case_.relu ? part(part_y, i) : none, part(dy, i),
                                 case_.residual ? part(part_dr, i) : none, dw, db, row(sums, i));
    for (std::size_t c = 0; c < part_dw.size(); ++c)
      part_dw[c] += dw.values()[c], part_db[c] += db.values()[c];
  }
  kernels.binary(BinaryOp::add, row(sums, 0), row(sums, 1), all_sums);
  for (int i = 0; i < 2; ++i) {
    kernels.batch_norm_grad_input(parted, all_sums, part(x, i), case_.relu ? part(part_y, i) : none,
                                  part(dy, i), part(part_dx, i));
  }
  kernels.batch_norm_backward(rule_, whole, x, y, dy, dx, case_.residual ? dr.view() : none, dw, db);

  const double largest = 4 / std::sqrt(rule_.eps);  // where a channel has one value twice
  test::expect_near(part_mean.values(), mean.values(), 1e-6, "mean");
  test::expect_near(other_mean.values(), running_mean.values(), 1e-6, "running mean");
  test::expect_near(other_var.values(), running_var.values(), 1e-6, "running variance");
  test::expect_near(part_y.values(), y.values(), tolerance(4), "output");
  test::expect_near(part_dx.values(), dx.values(), tolerance(largest), "gradient of the input");
  if (case_.residual) test::expect_near(part_dr.values(), dr.values(), 0, "gradient of the shortcut");
  const double channel_tolerance = (channel_dtype_ == DType::f64 ? 1e-13 : 2e-6) * count_;
  test::expect_near(part_dw, dw.values(), channel_tolerance, "gradient of the weight");
  test::expect_near(part_db, db.values(), channel_tolerance, "gradient of the bias");
}

INSTANTIATE_TEST_SUITE_P(Cases, BatchNorm, testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

/// A mean far from zero must not cost the variance its digits.
TEST(BatchNormStatistics, SurviveALargeMean) {
  const Dims kShape = shape_of(4, 2, 16, 16);
  Generator generator(3);
  Array x = Array::random(kShape, generator, DType::f32, Layout::channels_last);
  std::vector<double> values = x.values();
  for (double& value : values) value += 1000;
  x.set(values);
  const Array y(kShape, DType::f32, Layout::channels_last), mean(Dims{2}), inv_std(Dims{2});
  make_device("cpu")->kernels().batch_norm(kRule, {{}, {}, {}, {}, mean, inv_std}, x, {}, y);
  double squares = 0;
  for (const double value : y.values()) squares += value * value;
  EXPECT_NEAR(squares / static_cast<double>(kShape.product()), 1.0, 1e-3);
}

TEST(BatchNormStatistics, NanIsSeen) {
  const Dims kShape = shape_of(2, 16, 3, 3);
  Array x(kShape, DType::f32, Layout::channels_last);
  std::vector<double> values(static_cast<std::size_t>(kShape.product()), 0.5);
  values[20] = std::numeric_limits<double>::quiet_NaN();
  x.set(values);
  const Array y(kShape, DType::f32, Layout::channels_last), mean(Dims{16}), inv_std(Dims{16});
  BatchNormRule rule;
  rule.activation = Activation::relu;
  make_device("cpu")->kernels().batch_norm(rule, {{}, {}, {}, {}, mean, inv_std}, x, {}, y);
  EXPECT_TRUE(std::isnan(y.values()[20]));
}

TEST(BatchNormStatistics, OneValueIsRefused) {
  const Array x(Dims{1, 4, 1, 1}), y(Dims{1, 4, 1, 1}), mean(Dims{4}), inv_std(Dims{4});
  EXPECT_THROW(make_device("cpu")->kernels().batch_norm(kRule, {{}, {}, {}, {}, mean, inv_std}, x, {}, y),
               UsageError);
}

/// Ten values on one part, one on another, far from zero and from each other: sums of squares would lose
/// them.
TEST(BatchNormStatistics, PartsWithDistantMeansCombine) {
  Array given(Dims{2, 3}, DType::f64);
  const Array mean(Dims{1}), inv_std(Dims{1}), running_mean(Dims{1}), running_var(Dims{1});
  given.set({10, 1e6, 40, 1, 1e6 + 11, 0});
  const BatchNormRule rule{.eps = 0, .momentum = 1};
  make_device("cpu")->kernels().batch_norm_combine(rule, {{}, {}, running_mean, running_var, mean, inv_std},
                                                   given);
  EXPECT_EQ(mean.values()[0], 1e6 + 1);
  EXPECT_NEAR(running_var.values()[0], (40 + 110) / 10.0, 1e-5);
  EXPECT_NEAR(inv_std.values()[0], std::sqrt(11.0 / 150), 1e-7);
}

TEST(BatchNormStatistics, OneValueInAllPartsIsRefused) {
  Array parts(Dims{2, 3}, DType::f64);
  parts.set({1, 5, 0, 0, 0, 0});
  const Array mean(Dims{1}), inv_std(Dims{1});
  EXPECT_THROW(
      make_device("cpu")->kernels().batch_norm_combine(kRule, {{}, {}, {}, {}, mean, inv_std}, parts),
      UsageError);
}

/// Frozen parameters, and an input that nobody wants the gradient of: what is left has the same bits.
TEST(RowNormGradients, AreTheSameWhicheverAreWanted) {
  constexpr std::int64_t kRows = 37, kColumns = 83;
  Generator generator(4);
  const Array in = Array::random({kRows, kColumns}, generator),
              grad = Array::random({kRows, kColumns}, generator);
  const Array weight = Array::random({kColumns}, generator), mean(Dims{kRows}), inv_std(Dims{kRows});
  const std::shared_ptr<Device> device = make_device("cpu");
  device->kernels().row_norm({}, in, weight, {}, mean, inv_std, Array(Dims{kRows, kColumns}));
  struct Gradients {
    Array input{Dims{kRows, kColumns}}, weight{Dims{kColumns}}, bias{Dims{kColumns}};
  };
  const auto computed = [&](bool of_input, bool of_weight, bool of_bias) {
    Gradients to;
    device->kernels().row_norm_backward(in, weight, mean, inv_std, grad, of_input ? View(to.input) : View(),
                                        of_weight ? View(to.weight) : View(),
                                        of_bias ? View(to.bias) : View());
    return to;
  };
  const Gradients all = computed(true, true, true);
  const std::vector<double> nothing(kColumns, 0), no_input(kRows * kColumns, 0);
  for (int wanted = 0; wanted < 8; ++wanted) {
    const bool of_input = (wanted & 1) != 0, of_weight = (wanted & 2) != 0, of_bias = (wanted & 4) != 0;
    const Gradients some = computed(of_input, of_weight, of_bias);
    EXPECT_EQ(some.input.values(), of_input ? all.input.values() : no_input) << wanted;
    EXPECT_EQ(some.weight.values(), of_weight ? all.weight.values() : nothing) << wanted;
    EXPECT_EQ(some.bias.values(), of_bias ? all.bias.values() : nothing) << wanted;
  }
}

}  // namespace
}  // namespace dtrain
