// Kernels that several threads compute give the bits of one. Shapes are large enough to be spread.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "runtime/device/cpu/workers/workers.h"
#include "tests/unit/device/array.h"

namespace dtrain {
namespace {

using test::Array;
using test::Layout;

constexpr Layout kLast = Layout::channels_last;

std::vector<std::byte> bytes(const Array& array) {
  const auto* data = array.view().as<const std::byte>();
  return {data, data + static_cast<std::size_t>(array.view().numel()) * size_of(array.view().dtype)};
}

/// Runs `kernel` with 1 thread and with more, each time into fresh copies of `outputs`, and compares those
/// bit for bit.
class ThreadsOfKernels : public ::testing::Test {
 protected:
  using Outputs = std::vector<Array>;
  void expect_same_bits(const std::string& what, const Outputs& outputs,
                        const std::function<void(Kernels&, Outputs&)>& kernel) {
    const auto result = [&](int threads) {
      cpu::set_worker_count(threads);
      Outputs copies = outputs;
      kernel(device_->kernels(), copies);
      return copies;
    };
    const Outputs one = result(1);
    for (const int threads : {2, 3, 4, 8, 16}) {
      const Outputs several = result(threads);
      for (std::size_t i = 0; i < one.size(); ++i)
        EXPECT_TRUE(bytes(one[i]) == bytes(several[i]))
            << what << ", output " << i << ", " << threads << " threads";
    }
  }
  void TearDown() override { cpu::set_worker_count(before_); }

  const int before_ = cpu::worker_count();
  const std::shared_ptr<Device> device_ = make_device("cpu");
  Generator generator_{7};
};

struct Layer {
  std::int64_t images, channels, outputs, extent, kernel;
  Conv2dGeometry geometry;
};

TEST_F(ThreadsOfKernels, Convolution) {
  const Conv2dGeometry same{.pad_h = 1, .pad_w = 1},
      half{.stride_h = 2, .stride_w = 2, .pad_h = 1, .pad_w = 1};
  for (const Layer& l :
       {Layer{8, 32, 64, 16, 3, same}, Layer{4, 64, 32, 7, 3, same}, Layer{8, 128, 160, 4, 3, same},
        Layer{8, 3, 32, 16, 3, same}, Layer{8, 32, 64, 16, 3, half}, Layer{11, 3, 24, 24, 3, same},
        Layer{8, 32, 64, 15, 1, {.stride_h = 2, .stride_w = 2}},
        Layer{9, 16, 32, 20, 3, {.pad_h = 1, .pad_w = 1, .groups = 4}}}) {
    const std::int64_t out = (l.extent + 2 * l.geometry.pad_h - l.kernel) / l.geometry.stride_h + 1;
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const std::string what = std::to_string(l.channels) + " to " + std::to_string(l.outputs) +
                               " channels of " + std::to_string(l.extent) +
                               (dtype == DType::f32 ? ", f32" : ", bf16");
      const Array x = Array::uneven({l.images, l.channels, l.extent, l.extent}, generator_, dtype, kLast);
      const Array w =
          Array::uneven({l.outputs, l.channels / l.geometry.groups, l.kernel, l.kernel}, generator_, dtype);
      const Array bias = Array::uneven({l.outputs}, generator_);
      const Array dy = Array::uneven({l.images, l.outputs, out, out}, generator_, dtype, kLast);
      expect_same_bits(what, {dy}, [&](Kernels& kernels, Outputs& to) {
        kernels.conv2d(l.geometry, x, w, bias, Activation::none, to[0]);
      });
      expect_same_bits(what + ", gradient of the input", {x}, [&](Kernels& kernels, Outputs& to) {
        kernels.conv2d_backward_input(l.geometry, dy, w, to[0]);
      });
      expect_same_bits(what + ", gradient of the weight", {w.as(DType::f32), bias},
                       [&](Kernels& kernels, Outputs& to) {
                         kernels.conv2d_backward_weight(l.geometry, x, dy, to[0], to[1]);
                       });
    }
  }
}

// 77 images: four blocks and a half of lanes, and some that the lanes leave over.
TEST_F(ThreadsOfKernels, ConvolutionBlocksOfSmallNetworks) {
  for (const PoolKind kind : {PoolKind::avg, PoolKind::max}) {
    const Pool2dGeometry pool{.kind = kind};
    const Array x = Array::uneven({77, 4, 13, 13}, generator_, DType::f32, kLast);
    const Array w = Array::uneven({22, 4, 5, 5}, generator_), bias = Array::uneven({22}, generator_);
    const Array dy = Array::uneven({77, 22, 4, 4}, generator_, DType::f32, kLast);
    Array mask({77, 22, 4, 4}, DType::u8, kLast);
    const std::string what = kind == PoolKind::avg ? "average" : "maximum";
    expect_same_bits(what, {dy, mask}, [&](Kernels& kernels, Outputs& to) {
      kernels.conv2d_relu_pool2d({}, pool, x, w, bias, to[0], to[1]);
    });
    Array y = dy;
    device_->kernels().conv2d_relu_pool2d({}, pool, x, w, bias, y, mask);
    expect_same_bits(what + ", gradients", {x, w, bias}, [&](Kernels& kernels, Outputs& to) {
      kernels.conv2d_relu_pool2d_backward({}, pool, x, w, dy, mask, to[0], to[1], to[2]);
    });
  }
}

TEST_F(ThreadsOfKernels, Pooling) {
  for (const Pool2dGeometry& pool :
       {Pool2dGeometry{.kind = PoolKind::max},
        Pool2dGeometry{.kind = PoolKind::max, .kernel_h = 3, .kernel_w = 3, .pad_h = 1, .pad_w = 1}}) {
    const std::int64_t out = (32 + 2 * pool.pad_h - pool.kernel_h) / pool.stride_h + 1;
    const Array x = Array::uneven({16, 32, 32, 32}, generator_, DType::f32, kLast);
    const Array dy = Array::uneven({16, 32, out, out}, generator_, DType::f32, kLast);
    Array places({16, 32, out, out}, DType::u8, kLast);
    expect_same_bits("pooling", {dy, places},
                     [&](Kernels& kernels, Outputs& to) { kernels.pool2d(pool, x, to[0], to[1]); });
    Array y = dy;
    device_->kernels().pool2d(pool, x, y, places);
    expect_same_bits("pooling, gradient", {x}, [&](Kernels& kernels, Outputs& to) {
      kernels.pool2d_backward(pool, dy, places, to[0]);
    });
  }
}

// 3000 pixels of 96 channels: five chunks, the last one shorter and no whole stretch.
TEST_F(ThreadsOfKernels, BatchNorm) {
  const Dims shape{10, 96, 15, 20}, channels{96};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const auto random = [&] { return Array::uneven(shape, generator_, dtype, kLast); };
    const auto vector = [&] { return Array::uneven(channels, generator_); };
    const Array x = random(), residual = random(), dy = random(), weight = vector(), bias = vector();
    const BatchNormRule rule{.activation = Activation::relu};
    const auto of = [&](Outputs& to, std::size_t from, const View& shift) {
      return BatchNormChannels{.weight = weight,
                               .bias = shift,
                               .running_mean = to[from],
                               .running_var = to[from + 1],
                               .mean = to[from + 2],
                               .inv_std = to[from + 3]};
    };
    const Outputs statistics{vector(), vector(), vector(), vector()};
    Outputs forward{random()};
    forward.insert(forward.end(), statistics.begin(), statistics.end());
    expect_same_bits("batch norm", forward, [&](Kernels& kernels, Outputs& to) {
      kernels.batch_norm(rule, of(to, 1, bias), x, residual, to[0]);
    });
    device_->kernels().batch_norm(rule, of(forward, 1, bias), x, residual, forward[0]);
    const Array y = forward[0];
    expect_same_bits("batch norm, gradients", {random(), random(), vector(), vector()},
                     [&](Kernels& kernels, Outputs& to) {
                       kernels.batch_norm_backward(rule, of(forward, 1, View{}), x, y, dy, to[0], to[1],
                                                   to[2], to[3]);
                     });
  }
}

// Runs that are long, that are short, and one alone.
TEST_F(ThreadsOfKernels, Elements) {
  const Dims shape{6, 40, 33, 50};
  const Array x = Array::uneven(shape, generator_),
              last = Array::uneven(shape, generator_, DType::f32, kLast);
  View cut = x.view();
  cut.shape[3] = 7;
  const Array like_cut(cut.shape);
  for (const Array* from : {&x, &last}) {
    expect_same_bits("copies and sums", {last, x.as(DType::bf16), x, x}, [&](Kernels& kernels, Outputs& to) {
      kernels.copy(*from, to[0]);
      kernels.copy(*from, to[1]);
      kernels.accumulate(*from, 0.3, to[2]);
      kernels.affine(*from, 0.7, 0.1, to[3]);
    });
    expect_same_bits("operators", {last, x}, [&](Kernels& kernels, Outputs& to) {
      kernels.unary(UnaryOp::tanh, *from, to[0]);
      kernels.binary(BinaryOp::mul, *from, last, to[1]);
    });
  }
  expect_same_bits("a part", {like_cut, like_cut, x}, [&](Kernels& kernels, Outputs& to) {
    kernels.copy(cut, to[0]);
    kernels.binary(BinaryOp::add, cut, cut, to[1]);
    View part = to[2].view();
    part.shape[3] = 7;
    kernels.fill(part, 3);
  });
}

// Parameters larger than a chunk, smaller, and empty.
TEST_F(ThreadsOfKernels, Optimizers) {
  std::vector<Array> values;
  for (const std::int64_t size : {70001, 3, 0, 64, 16384, 40000, 1})
    for (int array = 0; array < 4; ++array) values.push_back(Array::uneven({size}, generator_));
  Array gate({2});
  values.push_back(gate);
  const auto slots = [](Outputs& to) {
    std::vector<OptimizerSlot> all;
    for (std::size_t i = 0; i + 4 <= to.size(); i += 4)
      all.push_back({to[i], to[i + 1], to[i + 2], to[i + 3]});
    return all;
  };
  expect_same_bits("optimizers", values, [&](Kernels& kernels, Outputs& to) {
    for (std::size_t i = 3; i < to.size(); i += 4) kernels.binary(BinaryOp::mul, to[i], to[i], to[i]);
    kernels.sgd(slots(to), {.lr = 0.1, .momentum = 0.9, .gate = {.skip = to.back(), .skipped = {}}});
    kernels.adamw(slots(to), {.step = 3});
  });
  for (const float infinite : {0.0F, 1.0F}) {
    cpu::set_worker_count(3);
    Outputs to = values;
    if (infinite != 0) to[1].view().as<float>()[69000] = std::numeric_limits<float>::infinity();
    device_->kernels().sgd(slots(to),
                           {.lr = 0.1, .momentum = 0.9, .gate = {.skip = to.back(), .skipped = {}}});
    EXPECT_EQ(to.back().view().as<float>()[1], infinite) << "what was written is finite or not";
  }
}

TEST_F(ThreadsOfKernels, LossScaling) {
  const Array scale = Array::uneven({1}, generator_), x = Array::uneven({300, 500}, generator_);
  for (const float value : {1.0F, std::numeric_limits<float>::infinity()}) {
    Array gradient = x;
    gradient.view().as<float>()[120000] = value;
    expect_same_bits("unscale", {gradient, Array({1}), Array({1})}, [&](Kernels& kernels, Outputs& to) {
      const View views[] = {to[0], to[1]};
      kernels.find_not_finite(std::span(views), to[2]);
      EXPECT_EQ(to[2].view().as<float>()[0] != 0, value != 1.0F);
      kernels.unscale(std::span(views), scale, to[2]);
      EXPECT_EQ(to[2].view().as<float>()[0] != 0, value != 1.0F);
    });
  }
}

struct Product {
  std::int64_t batch, rows, columns, terms;
};

// The longest sums are those that the library would cut among its threads; the short products are cut into
// rows.
TEST_F(ThreadsOfKernels, Products) {
  for (const Product& p : {Product{1, 128, 500, 800}, Product{1, 64, 64, 4096}, Product{1, 10, 160, 3000},
                           Product{1, 10, 10, 20000}, Product{2, 96, 64, 2048}, Product{1, 256, 256, 2048},
                           Product{16, 64, 64, 32}, Product{1, 128, 512, 784}, Product{1, 512, 784, 128},
                           Product{1, 130, 97, 301}, Product{1, 500, 10, 128}}) {
    for (const bool transposed : {false, true}) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        const Array a = Array::uneven(
            transposed ? Dims{p.batch, p.terms, p.rows} : Dims{p.batch, p.rows, p.terms}, generator_, dtype);
        const Array b = Array::uneven({p.batch, p.terms, p.columns}, generator_, dtype);
        View left = a;
        left.shape = {p.batch, p.rows, p.terms};
        if (transposed) left.strides = {p.terms * p.rows, 1, p.rows};
        expect_same_bits(std::to_string(p.terms) + " terms" + (transposed ? ", transposed" : ""),
                         {Array({p.batch, p.rows, p.columns}, DType::f32)},
                         [&](Kernels& kernels, Outputs& to) {
                           kernels.matmul(left, b, View{}, Activation::none, false, to[0]);
                         });
      }
    }
  }
}

}  // namespace
}  // namespace dtrain
