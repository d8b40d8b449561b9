// Recomputation: the same gradients for less memory, whatever the function does.
#include "runtime/autograd/recompute.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "runtime/autograd/autocast.h"
#include "runtime/autograd/gradients.h"
#include "runtime/base/error.h"
#include "runtime/nn/layers.h"
#include "runtime/nn/recurrent.h"

namespace dtrain {
namespace {

class RecomputeTest : public testing::Test {
 protected:
  Tensor random(const Dims& shape) { return Tensor::rand(shape, generator_, device_, -1.0F, 1.0F); }
  Tensor leaf(const Dims& shape) {
    Tensor tensor = random(shape);
    tensor.set_requires_grad(true);
    return tensor;
  }

  std::shared_ptr<Device> device_ = make_device("cpu");
  Generator generator_{3};
};

/// A convolution, batch norm and shortcut, twice: what a residual network is made of.
class Block final : public Module {
 public:
  Block(Generator& generator, const std::shared_ptr<Device>& device) {
    Conv2dOptions same;
    same.geometry.pad_h = same.geometry.pad_w = 1;
    conv_ = add_module("conv", std::make_shared<Conv2d>(4, 4, 3, generator, device, same));
    norm_ = add_module("norm", std::make_shared<BatchNorm2d>(4, device));
  }
  Tensor forward(const Tensor& x) override {
    ++calls;
    return norm_->forward((*conv_)(x), Activation::relu, x);
  }
  int calls = 0;

 private:
  std::shared_ptr<Conv2d> conv_;
  std::shared_ptr<BatchNorm2d> norm_;
};

std::vector<std::vector<float>> gradients_of(const Module& module) {
  std::vector<std::vector<float>> all;
  for (const auto& [name, parameter] : module.named_parameters())
    all.push_back(parameter.grad().to_vector<float>());
  return all;
}

std::vector<std::vector<double>> buffers_of(const Module& module) {
  std::vector<std::vector<double>> all;
  for (const auto& [name, buffer] : module.named_buffers()) all.push_back(buffer.to_vector<double>());
  return all;
}

TEST_F(RecomputeTest, ModulesHaveTheSameGradientsAndStatisticsToTheBit) {
  Generator one(5), two(5);
  auto plain_first = std::make_shared<Block>(one, device_),
       plain_second = std::make_shared<Block>(one, device_);
  auto first = std::make_shared<Block>(two, device_), second = std::make_shared<Block>(two, device_);
  Sequential plain({plain_first, plain_second}), again({first, second});
  first->set_recompute(), second->set_recompute();
  for (int step = 0; step < 2; ++step) {
    const Tensor values = random({3, 4, 5, 5});
    Tensor x = values.clone(), z = values.clone();
    x.set_requires_grad(true), z.set_requires_grad(true);
    const Tensor expected = plain(x), got = again(z);
    EXPECT_EQ(got.to_vector<float>(), expected.to_vector<float>());
    sum(square(expected)).backward();
    sum(square(got)).backward();
    EXPECT_EQ(z.grad().to_vector<float>(), x.grad().to_vector<float>());
    EXPECT_EQ(gradients_of(again), gradients_of(plain));
    EXPECT_EQ(buffers_of(again), buffers_of(plain));  // once a step, not twice
  }
  EXPECT_EQ(plain_first->calls, 2);
  EXPECT_EQ(first->calls, 4);
  EXPECT_FALSE(recomputing());
}

TEST_F(RecomputeTest, KeepsOnlyTheInput) {
  const auto chain = [](const Tensor& x) {
    Tensor y = x;
    for (int i = 0; i < 10; ++i) y = sigmoid(y);
    return y;
  };
  Tensor x = leaf({1 << 16});
  const std::size_t bytes = sizeof(float) << 16, before = device_->allocated_bytes();
  {
    const Tensor y = chain(x);
    EXPECT_GE(device_->allocated_bytes() - before, 10 * bytes);
  }
  EXPECT_EQ(device_->allocated_bytes(), before);
  const Tensor y = recomputed(chain, x, {});
  EXPECT_LT(device_->allocated_bytes() - before, 2 * bytes);
  sum(y).backward();
  EXPECT_LT(device_->allocated_bytes() - before, 3 * bytes);  // the result and the gradient
}

TEST_F(RecomputeTest, Nests) {
  int runs = 0;
  const Tensor w = leaf({8});
  const auto inner = [&](const Tensor& x) {
    ++runs;
    return tanh(mul(x, w));
  };
  const auto outer = [&](const Tensor& x) { return recomputed(inner, recomputed(inner, x, {w}), {w}); };
  const Tensor values = random({8});
  const auto run = [&](const TensorFunction& f) {
    Tensor x = values.clone();
    x.set_requires_grad(true);
    Tensor weight = w;
    weight.zero_grad();
    sum(f(x)).backward();
    return std::pair(x.grad().to_vector<float>(), w.grad().to_vector<float>());
  };
  const auto expected = run([&](const Tensor& x) { return inner(inner(x)); });
  runs = 0;
  const auto got = run([&](const Tensor& x) { return recomputed(outer, x, {w}); });
  EXPECT_EQ(got.first, expected.first);
  for (std::size_t i = 0; i < got.second.size(); ++i) EXPECT_NEAR(got.second[i], expected.second[i], 1e-6);
  EXPECT_EQ(runs, 2 + 2 + 2);  // forward; the outer one again; each inner one again
}

// As torch's non-reentrant checkpoint: sums are formed in the order in which they are without recomputation.
TEST_F(RecomputeTest, PartsThatShareWeightsGiveTheSameBits) {
  constexpr std::int64_t kParts = 5, kSteps = 3;
  const Tensor w0 = random({8, 8}), b0 = random({8}), x0 = random({4, 8});
  const auto run = [&](bool again) {
    Tensor w = w0.clone(), b = b0.clone(), x = x0.clone();
    for (Tensor* tensor : {&w, &b, &x}) tensor->set_requires_grad(true);
    const Tensor scaled = mul(x, 0.5);  // used by each part, more than once
    const TensorsFunction part = [&](const std::vector<Tensor>& in) {
      Tensor h = in[0];
      for (std::int64_t i = 0; i < kSteps; ++i) h = tanh(add(linear(add(h, in[1]), w, b), mul(h, in[1])));
      return std::vector<Tensor>{h};
    };
    Tensor h = scaled;
    for (std::int64_t i = 0; i < kParts; ++i)
      h = again ? recomputed(part, {h, scaled}, {w, b})[0] : part({h, scaled})[0];
    sum(square(h)).backward();
    return std::vector{w.grad().to_vector<float>(), b.grad().to_vector<float>(), x.grad().to_vector<float>()};
  };
  EXPECT_EQ(run(true), run(false));
}

TEST_F(RecomputeTest, RecurrentPartsGiveTheSameBits) {
  const Tensor x0 = random({3, 24, 6});
  const auto run = [&](bool again) {
    Generator generator(4);
    LSTM lstm(6, 8, generator, device_, {.batch_first = true});
    Tensor x = x0.clone();
    x.set_requires_grad(true);
    Tensors state;
    Tensor total;
    for (std::int64_t part = 0; part < 4; ++part) {
      Tensors inputs = {x.slice(1, 6 * part, 6 * part + 6).contiguous()};
      inputs.insert(inputs.end(), state.begin(), state.end());
      const Tensors results = again ? recomputed(lstm, inputs) : lstm(inputs);
      state = {results[1], results[2]};
      const Tensor loss = sum(square(results[0]));
      total = total.defined() ? add(total, loss) : loss;
    }
    total.backward();
    auto all = gradients_of(lstm);
    all.push_back(x.grad().to_vector<float>());
    return all;
  };
  EXPECT_EQ(run(true), run(false));
}

TEST_F(RecomputeTest, ParametersGetGradientsWhereTheInputNeedsNone) {
  Tensor w = leaf({4});
  const Tensor x = random({4});
  sum(recomputed([&](const Tensor& in) { return mul(in, w); }, x, {w})).backward();
  EXPECT_EQ(w.grad().to_vector<float>(), x.to_vector<float>());
}

TEST_F(RecomputeTest, AParameterUsedElsewhereTooIsReportedOnce) {
  Tensor w = leaf({4}), unused = leaf({4});
  int reports = 0;
  w.on_grad_ready([&] { ++reports; });
  const auto times = [&](const Tensor& in) { return mul(in, w); };
  const Tensor x = random({4});
  sum(mul(recomputed(times, recomputed(times, x, {w, unused}), {w}), w)).backward();
  EXPECT_EQ(reports, 1);
  EXPECT_FALSE(unused.grad().defined());
  const auto got = w.grad().to_vector<float>();
  Tensor v = w.detach().clone();
  v.set_requires_grad(true);
  sum(mul(x, mul(v, square(v)))).backward();
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], v.grad().to_vector<float>()[i], 1e-6);
}

// As a replica's parameters are results of those that learn.
TEST_F(RecomputeTest, AParameterMayBeAResult) {
  const auto device = make_device("cpu");
  const auto gradient = [&](bool again) {
    Tensor weight = Tensor::full({3}, 2.0, device);
    weight.set_requires_grad(true);
    const Tensor copy = mul(weight, 3.0);
    const auto function = [&copy](const Tensor& in) { return square(mul(in, copy)); };
    Tensor y = Tensor::full({3}, 0.5, device);
    for (int i = 0; i < 2; ++i) y = again ? recomputed(function, y, {copy}) : function(y);
    sum(y).backward();
    return weight.grad().to_vector<float>();
  };
  EXPECT_EQ(gradient(true), gradient(false));
}

TEST_F(RecomputeTest, TheSecondRunHasThePrecisionOfTheFirst) {
  Linear layer(8, 8, generator_, device_);
  const Tensor x = random({2, 8});
  std::vector<DType> seen;
  LowPrecisionWeights weights;
  Tensor y;
  {
    const Autocast autocast(Precision::bf16, weights);
    const auto forward = [&](const Tensor& in) {
      const Tensor result = layer(in);
      seen.push_back(result.dtype());
      return result.to(DType::f32);
    };
    y = recomputed(forward, x, {layer.named_parameters()[0].second, layer.named_parameters()[1].second});
  }
  sum(y).backward();
  EXPECT_EQ(seen, (std::vector<DType>{DType::bf16, DType::bf16}));
  EXPECT_FALSE(autocast_enabled());
}

TEST_F(RecomputeTest, ExceptionsPassAndLeaveTheThreadAsItWas) {
  Tensor x = leaf({4});
  const auto fails = [](const Tensor&) -> Tensor { throw std::runtime_error("forward failed"); };
  EXPECT_THROW(recomputed(fails, x, {}), std::runtime_error);
  EXPECT_TRUE(grad_enabled());
  const auto fails_again = [](const Tensor& in) {
    if (recomputing()) throw std::runtime_error("second forward failed");
    return square(in);
  };
  const Tensor y = sum(recomputed(fails_again, x, {}));
  EXPECT_THROW(y.backward(), std::runtime_error);
  EXPECT_TRUE(grad_enabled());
  EXPECT_FALSE(recomputing());
  EXPECT_FALSE(x.grad().defined());
}

TEST_F(RecomputeTest, WithoutRecordingItIsTheFunction) {
  Tensor x = leaf({4});
  {
    const NoGrad no_grad;
    EXPECT_FALSE(recomputed([](const Tensor& in) { return exp(in); }, x, {}).requires_grad());
  }
  const Tensor constant = random({4});
  EXPECT_FALSE(recomputed([](const Tensor& in) { return exp(in); }, constant, {}).requires_grad());
}

TEST_F(RecomputeTest, AFunctionMayGiveItsInputBack) {
  Tensor x = leaf({4});
  sum(recomputed([](const Tensor& in) { return in; }, x, {})).backward();
  EXPECT_EQ(x.grad().to_vector<float>(), std::vector<float>(4, 1));
  EXPECT_TRUE(x.is_leaf());
}

TEST_F(RecomputeTest, WhatCannotBeComputedAgainIsRefused) {
  Tensor x = leaf({4});
  const Tensor grows = sum(recomputed(
      [](const Tensor& in) {
        return recomputing() ? in.reshape({2, 2}) : in;
      },
      x, {}));
  EXPECT_THROW(grows.backward(), UsageError);
  const Tensor changed = sum(recomputed([](const Tensor& in) { return exp(in); }, x, {}));
  {
    const NoGrad no_grad;
    x.add_in_place(Tensor::ones({4}, device_));
  }
  EXPECT_THROW(changed.backward(), UsageError);
  const Tensor twice = sum(recomputed([](const Tensor& in) { return square(in); }, x, {}));
  const std::vector<Tensor> inputs{x};
  const Tensor once = gradients(twice, inputs, {}, {.create_graph = true})[0];
  EXPECT_THROW(sum(once).backward(), UsageError);
  Block block(generator_, device_);
  block.set_recompute();
  const Tensor y = sum(block(leaf({2, 4, 3, 3})));
  block.eval();
  EXPECT_THROW(y.backward(), UsageError);
}

}  // namespace
}  // namespace dtrain
