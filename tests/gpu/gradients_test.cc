// What autograd does otherwise on a GPU: float16 operands in place of emulated ones, and gradients that are
// known without being computed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "runtime/autograd/autocast.h"
#include "runtime/autograd/gradients.h"
#include "runtime/autograd/ops.h"
#include "runtime/autograd/ops/linear_cross_entropy.h"

namespace dtrain::test {
namespace {

/// The same values on both devices.
class GpuGradients : public testing::Test {
 protected:
  struct Leaves {
    Tensor x, w, bias, scale, shift, next;
  };
  Leaves leaves(const std::shared_ptr<Device>& device) const {
    Generator generator{11};
    const auto leaf = [&](const Dims& shape) {
      Tensor tensor = Tensor::rand(shape, generator, cpu, -1.0F, 1.0F).to(device);
      tensor.set_requires_grad(true);
      return tensor;
    };
    return {leaf({3, 8, 6, 6}), leaf({16, 8, 3, 3}), leaf({16}), leaf({16}), leaf({16}), leaf({4, 16, 1, 1})};
  }
  static Tensor normalised(const Leaves& of, const Tensor& y) {
    return batch_norm(y, of.scale, of.shift, {}, {}, {.activation = Activation::relu}, true);
  }
  static void expect_near(const Tensor& got, const Tensor& expected, double bound, const char* what) {
    ASSERT_TRUE(got.defined()) << what;
    const auto a = got.to(DType::f32).to_vector<float>(), b = expected.to(DType::f32).to_vector<float>();
    for (std::size_t i = 0; i < b.size(); ++i) {
      EXPECT_NEAR(a[i], b[i], bound * std::max(1.0F, std::abs(b[i]))) << what << ", element " << i;
    }
  }
  static float largest(const Tensor& x) {
    const auto values = x.to_vector<float>();
    return std::abs(*std::max_element(values.begin(), values.end(),
                                      [](float a, float b) { return std::abs(a) < std::abs(b); }));
  }
  std::shared_ptr<Device> cpu = make_device("cpu"), gpu = make_device("cuda");
};

constexpr Conv2dGeometry kPadded = {.pad_h = 1, .pad_w = 1};

// Batch norm takes its channels' means away, and with them what a bias before it has added.
TEST_F(GpuGradients, OfABiasBehindBatchNormIsNothing) {
  const Leaves here = leaves(cpu), there = leaves(gpu);
  for (const Leaves* of : {&here, &there}) {
    sum(square(normalised(*of, conv2d(of->x, of->w, of->bias, kPadded)))).backward();
  }
  EXPECT_LT(largest(here.bias.grad()), 1e-3F);  // what rounding leaves
  EXPECT_EQ(largest(there.bias.grad()), 0);
  expect_near(there.w.grad(), here.w.grad(), 1e-4, "weight");
  expect_near(there.x.grad(), here.x.grad(), 1e-4, "input");
}

// Whatever else the convolution's result goes to has a gradient of its own, before and after.
TEST_F(GpuGradients, OfABiasThatAlsoGoesElsewhereAreSummed) {
  for (const int other : {0, 1, 2}) {
    const Leaves here = leaves(cpu), there = leaves(gpu);
    for (const Leaves* of : {&here, &there}) {
      const Tensor y = conv2d(of->x, of->w, of->bias, kPadded);
      Tensor beside;
      if (other == 0) beside = sum(square(y));  // recorded before batch norm: back after it
      if (other == 1) beside = sum(square(conv2d(y, of->next, {})));  // added in place
      const Tensor loss = sum(square(normalised(*of, y)));
      if (other == 2) beside = sum(square(y));
      add(loss, beside).backward();
    }
    EXPECT_GT(largest(there.bias.grad()), 1) << other;
    expect_near(there.bias.grad(), here.bias.grad(), 1e-4, "bias");
    expect_near(there.w.grad(), here.w.grad(), 1e-4, "weight");
  }
  const Leaves here = leaves(cpu), there = leaves(gpu);
  for (const Leaves* of : {&here, &there}) {  // relu inside the convolution lets part of it through
    const Tensor y = conv2d(of->x, of->w, of->bias, kPadded, Activation::relu);
    sum(square(normalised(*of, y))).backward();
  }
  EXPECT_GT(largest(there.bias.grad()), 0.01);
  expect_near(there.bias.grad(), here.bias.grad(), 1e-4, "bias behind relu");
}

/// conv, batch norm and relu, pooling, linear; float16's gradients are scaled as in training.
Tensor loss_of(const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& scale,
               const Tensor& head) {
  const Tensor y = conv2d(x, w, bias, kPadded);
  const Tensor z = batch_norm(y, scale, scale, {}, {}, {.activation = Activation::relu}, true);
  const Tensor rows = flatten(max_pool2d(z, 2));
  const Tensor target = Tensor::zeros({x.size(0)}, x.shared_device(), DType::i64);
  return mul(cross_entropy(linear(rows, head, {}), target), 1024.0);
}

TEST_F(GpuGradients, OfFloat16AreThoseThatTheCpuEmulates) {
  LowPrecisionWeights weights;
  const Autocast autocast(Precision::fp16, weights);
  const Leaves here = leaves(cpu), there = leaves(gpu);
  EXPECT_EQ(conv2d(there.x, there.w, there.bias, kPadded).dtype(), DType::f16);
  EXPECT_EQ(normalised(there, conv2d(there.x, there.w, {}, kPadded)).dtype(), DType::f16);
  EXPECT_EQ(add(there.x, conv2d(there.x, there.w.detach().clone(), {}, kPadded).slice(1, 0, 8)).dtype(),
            DType::f32);
  std::vector<Tensor> losses, heads;
  for (const Leaves* of : {&here, &there}) {
    Generator generator{3};
    Tensor head = Tensor::rand({10, 16 * 9}, generator, cpu, -0.2F, 0.2F).to(of->x.shared_device());
    head.set_requires_grad(true);
    heads.push_back(head);
    losses.push_back(loss_of(of->x, of->w, of->bias, of->scale, head));
    EXPECT_EQ(losses.back().dtype(), DType::f32);
    losses.back().backward();
    EXPECT_EQ(head.grad().dtype(), DType::f32);
  }
  EXPECT_NEAR(losses[1].item(), losses[0].item(), 4e-3 * losses[0].item());
  const auto apart = [](const Tensor& got, const Tensor& expected) {
    const auto a = got.to_vector<float>(), b = expected.to_vector<float>();
    double difference = 0, size = 0;
    for (std::size_t i = 0; i < b.size(); ++i) {
      difference += (a[i] - b[i]) * (a[i] - b[i]);
      size += b[i] * b[i];
    }
    return std::sqrt(difference / size);
  };
  EXPECT_LT(apart(heads[1].grad(), heads[0].grad()), 0.01);
  EXPECT_LT(apart(there.w.grad(), here.w.grad()), 0.02);
  EXPECT_LT(apart(there.x.grad(), here.x.grad()), 0.02);
}

// In slices of rows; float16's slopes are unscaled within.
TEST_F(GpuGradients, OfAHeadThatIsFusedWithItsLossAreTheCpus) {
  for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16}) {
    LowPrecisionWeights weights;
    const Autocast autocast(precision, weights);
    std::vector<Tensor> losses, inputs, heads;
    for (const auto& device : {cpu, gpu}) {
      Generator generator{5};
      const auto leaf = [&](const Dims& shape) {
        Tensor tensor = Tensor::rand(shape, generator, cpu, -1.0F, 1.0F).to(device);
        tensor.set_requires_grad(true);
        return tensor;
      };
      inputs.push_back(leaf({37, 24}));
      heads.push_back(leaf({50, 24}));
      const Tensor target = Tensor::arange(37, device);
      losses.push_back(
          linear_cross_entropy(inputs.back(), heads.back(), target, {.ignore_index = 3, .rows_at_once = 16}));
      mul(losses.back(), 1024.0).backward();
    }
    const double bound = precision == Precision::fp32 ? 1e-4 : precision == Precision::fp16 ? 0.02 : 0.1;
    EXPECT_NEAR(losses[1].item(), losses[0].item(), bound * losses[0].item());
    expect_near(inputs[1].grad(), inputs[0].grad(), bound, "input");
    expect_near(heads[1].grad(), heads[0].grad(), bound, "head");
  }
}

// A convolution adds to what came by the shortcut before it rounds, in the tape or in a leaf: where a network
// is cut into stages or computed again, its input is a leaf.
TEST_F(GpuGradients, OfAnInputWithAShortcutAreThoseOfAResultWithOne) {
  const Leaves of = leaves(gpu);
  const Tensor start = of.x.detach().to(DType::f16).contiguous(MemoryFormat::channels_last);
  const Tensor w = of.w.detach().to(DType::f16).slice(0, 0, 8).contiguous();
  const auto result = [&](const Tensor& x) {
    const Tensor y = conv2d(x, w, {}, kPadded);  // recorded first: back last
    return add(y, mul(x, 3.0));
  };
  const Tensor seed = result(start);
  Tensor before = start.clone(), leaf = start.clone();
  for (Tensor* tensor : {&before, &leaf}) tensor->set_requires_grad(true);
  result(mul(before, 1.0)).backward(seed);
  result(leaf).backward(seed);
  const std::vector<Tensor> captured = gradients(result(leaf), {&leaf, 1}, seed);
  const auto numbers = [](const Tensor& x) { return x.to(DType::f32).to_vector<float>(); };
  EXPECT_EQ(numbers(leaf.grad()), numbers(before.grad()));
  EXPECT_EQ(numbers(captured[0]), numbers(before.grad()));
}

TEST_F(GpuGradients, ThatFloat16CannotHoldAreInfinite) {
  LowPrecisionWeights weights;
  const Autocast autocast(Precision::fp16, weights);
  for (const auto& device : {cpu, gpu}) {
    const Tensor x = Tensor::full({2, 4}, 300.0, device);
    Tensor w = Tensor::full({3, 4}, 300.0, device);
    w.set_requires_grad(true);
    const Tensor y = linear(x, w, {});
    EXPECT_TRUE(std::isinf(y.to(DType::f32).to_vector<float>()[0])) << device->name();
    sum(mul(linear(Tensor::full({2, 4}, 1.0, device), w, {}).to(DType::f32), 1e6)).backward();
    EXPECT_TRUE(std::isinf(w.grad().to_vector<float>()[0])) << device->name();
  }
}

}  // namespace
}  // namespace dtrain::test
