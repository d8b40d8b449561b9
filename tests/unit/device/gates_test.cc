// What stops the gradient behind a relu, wherever one is part of a kernel: 0 and below, but not NaN, so that
// it shows in the gradients of a diverged run.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>

#include "tests/unit/device/array.h"

namespace dtrain {
namespace {

using test::Array;
using test::Layout;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(Gates, LetGradientsOfNanPass) {
  const auto device = make_device("cpu");
  Kernels& k = device->kernels();
  Array gate({4}), grad({4}), out({4});
  gate.set({kNan, 0, -1, 2});
  grad.set({1, 2, 3, 4});
  k.binary(BinaryOp::relu_grad, grad, gate, out);
  EXPECT_EQ(out.values(), (std::vector<double>{1, 0, 0, 4}));
  for (const DType dtype : {DType::f32, DType::f64}) {
    const auto make = [dtype = dtype] { return Array({2, 1, 2, 2}, dtype, Layout::channels_last); };
    Array x = make(), y = make(), dy = make(), dx = make(), dr = make();
    Array mean({1}, dtype), inv_std({1}, dtype);
    x.set({1, 2, 3, 4, 5, 6, 7, 8});
    dy.set({1, 1, 1, 1, 1, 1, 1, 1});
    y.set({kNan, 0, 1, 1, 1, 1, 1, 1});
    k.fill(mean, 0);
    k.fill(inv_std, 1);
    const BatchNormRule rule{.activation = Activation::relu};
    k.batch_norm_backward(rule, {{}, {}, {}, {}, mean, inv_std}, x, y, dy, dx, dr, {}, {});
    EXPECT_EQ(dr.values(), (std::vector<double>{1, 0, 1, 1, 1, 1, 1, 1}));
  }
}

/// 16 images take the lanes where there are any, 3 the general path, float64 plain loops.
TEST(Gates, OfTheFusedBlockLetGradientsOfNanPass) {
  const auto device = make_device("cpu");
  for (const PoolKind kind : {PoolKind::avg, PoolKind::max}) {
    for (const auto& [images, dtype] : {std::pair{std::int64_t{16}, DType::f32},
                                        {std::int64_t{3}, DType::f32},
                                        {std::int64_t{3}, DType::f64}}) {
      Array x({images, 1, 2, 2}, dtype), dx({images, 1, 2, 2}, dtype), y({images, 1, 1, 1}, dtype);
      Array w({1, 1, 1, 1}, dtype), dw({1, 1, 1, 1}, dtype);
      Array mask({images, 1, 1, 1}, DType::u8);
      std::vector<double> values(static_cast<std::size_t>(4 * images), -1.0);
      values[1] = kNan;
      x.set(values);
      w.set({1});
      const Pool2dGeometry pool{.kind = kind};
      device->kernels().conv2d_relu_pool2d({}, pool, x, w, {}, y, mask);
      EXPECT_TRUE(std::isnan(y.values()[0]));
      std::vector<double> ones(static_cast<std::size_t>(images), 1.0);
      y.set(ones);
      device->kernels().conv2d_relu_pool2d_backward({}, pool, x, w, y, mask, dx, dw, {});
      std::vector<double> expected(values.size(), 0.0);
      expected[1] = kind == PoolKind::avg ? 0.25 : 1;
      EXPECT_EQ(dx.values(), expected) << images;
    }
  }
}

}  // namespace
}  // namespace dtrain
