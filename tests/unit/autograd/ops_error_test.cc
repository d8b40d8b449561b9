// Operands that do not fit are refused by the operation's name, with both sides.
#include <gtest/gtest.h>

#include <functional>

#include "runtime/autograd/ops.h"
#include "runtime/autograd/ops/pooling.h"
#include "runtime/autograd/ops/products.h"
#include "runtime/autograd/ops/resampling.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

struct Refusal {
  std::function<Tensor(const std::shared_ptr<Device>&)> f;
  std::string message;
};

Tensor f32(const Dims& shape, const std::shared_ptr<Device>& on) { return Tensor::ones(shape, on); }
Tensor i64(const Dims& shape, const std::shared_ptr<Device>& on) {
  return Tensor::zeros(shape, on, DType::i64);
}

TEST(Operations, RefuseWhatDoesNotFit) {
  const std::vector<Refusal> refusals = {
      {[](const auto& d) {
         return f32({2, 3}, d) + f32({2}, d);
       },
       "add: shapes [2, 3] and [2] do not broadcast: extents 3 and 2 of dimension -1 differ and neither is "
       "1"},
      {[](const auto& d) { return f32({2}, d) * f32({2}, d).to(DType::bf16); },
       "mul: expected operands of one dtype, got float32 [2] and bfloat16 [2]; convert one with to()"},
      {[](const auto& d) {
         return matmul(f32({2, 3}, d), f32({2, 3}, d));
       },
       "matmul: expected […, M, K] · […, K, N], got float32 [2, 3] and float32 [2, 3]"},
      {[](const auto& d) {
         return matmul(f32({}, d), f32({2, 3}, d));
       },
       "matmul: expected […, M, K] · […, K, N], got float32 [] and float32 [2, 3]"},
      {[](const auto& d) {
         return linear(f32({2, 3}, d), f32({4, 2}, d), f32({4}, d));
       },
       "linear: expected x […, K], w [N, K] and bias [N], got float32 [2, 3], float32 [4, 2] and float32 "
       "[4]"},
      {[](const auto& d) {
         return conv2d(f32({1, 3, 4, 4}, d), f32({2, 2, 3, 3}, d), {});
       },
       "conv2d: expected x [N, C, H, W], w [O, C / groups, KH, KW] and bias [O], got float32 [1, 3, 4, 4], "
       "float32 [2, 2, 3, 3] and undefined with groups 1"},
      {[](const auto& d) {
         return conv2d(f32({1, 2, 2, 4}, d), f32({2, 2, 3, 3}, d), {});
       },
       "conv2d: the window of w float32 [2, 2, 3, 3] does not fit into x float32 [1, 2, 2, 4] with padding "
       "0x0"},
      {[](const auto& d) {
         return max_pool2d(f32({1, 1, 2, 2}, d), 3);
       },
       "pool2d: a window of 3x3 with stride 3x3 does not fit into x [1, 1, 2, 2]"},
      {[](const auto& d) {
         return max_pool2d(f32({2, 2}, d), 3);
       },
       "pool2d: expected x [N, C, H, W], got float32 [2, 2]"},
      {[](const auto& d) {
         return cross_entropy(f32({2, 3}, d), i64({3}, d));
       },
       "cross_entropy: expected logits [N, C, …] and target int64 [N, …], got float32 [2, 3] and int64 [3]"},
      {[](const auto& d) {
         return mse_loss(f32({2, 3}, d), f32({3}, d));
       },
       "mse_loss: expected prediction and target of one shape, got float32 [2, 3] and float32 [3]"},
      {[](const auto& d) { return mean(i64({2}, d)); },
       "mean: expected a floating dtype, got int64 [2]; convert it with to()"},
      {[](const auto& d) {
         return sum(f32({2, 3}, d), {2});
       },
       "sum: dimension 2 is outside a tensor of 2 dimensions"},
      {[](const auto& d) {
         return sum(f32({2, 3}, d), {1, -1});
       },
       "sum: dimension -1 appears twice in [1, -1]"},
      {[](const auto& d) {
         return max_pool(f32({1, 1, 4}, d), {.kernel = {2, 2}});
       },
       "max_pool: expected x [N, C, L], [N, C, H, W] or [N, C, D, H, W] and a kernel, stride, padding and "
       "dilation for each dimension behind C, got float32 [1, 1, 4], kernel [2, 2], stride [], padding [] "
       "and "
       "dilation []"},
      {[](const auto& d) {
         return max_pool(f32({1, 1, 4, 4}, d), {.kernel = {2, 3}, .dilation = {1, 2}});
       },
       "max_pool: expected a kernel, stride and dilation of at least 1, padding of at most half of the "
       "kernel, and a window that fits into x, got kernel 3, stride 3, padding 0 and dilation 2 in dimension "
       "3 of float32 [1, 1, 4, 4]"},
      {[](const auto& d) {
         return interpolate(f32({1, 1, 4}, d), {.size = {8}, .mode = InterpolateMode::bicubic});
       },
       "interpolate: expected x [N, C, H, W] for bicubic, got float32 [1, 1, 4]"},
      {[](const auto& d) {
         return conv_transpose3d(f32({1, 2, 3, 3, 3}, d), f32({2, 1, 2, 2, 2}, d), {}, {}, {1, 0, 0});
       },
       "conv_transpose3d: expected x [N, C, D, H, W], w [C, O / groups, KD, KH, KW], bias [O] or none, "
       "positive strides and dilations, output_padding smaller than one of them, and padding of no more than "
       "there is, got float32 [1, 2, 3, 3, 3], float32 [2, 1, 2, 2, 2], none, groups 1, stride 1, padding 0, "
       "dilation 1 and output_padding 1 of the frames"},
      {[](const auto& d) {
         return addmv(f32({2}, d), f32({2, 3}, d), f32({3, 1}, d));
       },
       "addmv: expected factors of 2 and 1 dimensions, got float32 [2, 3] and float32 [3, 1]"},
  };
  const auto device = make_device("cpu");
  for (const Refusal& refusal : refusals) {
    try {
      refusal.f(device);
      ADD_FAILURE() << "did not throw: " << refusal.message;
    } catch (const UsageError& error) {
      EXPECT_EQ(error.what(), refusal.message);
    }
  }
}

TEST(Operations, RefuseTargetsOutsideTheClasses) {
  const auto device = make_device("cpu");
  EXPECT_THROW(cross_entropy(f32({1, 3}, device), Tensor::full({1}, 3, device, DType::i64)), UsageError);
  EXPECT_THROW(cross_entropy(f32({1, 3}, device), Tensor::full({1}, -1, device, DType::i64)), UsageError);
}

TEST(Operations, RefuseTwoDevices) {
  const auto device = make_device("cpu"), other = make_device("cpu");
  EXPECT_THROW(f32({1}, device) + f32({1}, other), UsageError);
}

TEST(Operations, KeepChannelsLast) {
  const auto device = make_device("cpu");
  const Tensor x = f32({2, 3, 4, 4}, device).contiguous(MemoryFormat::channels_last);
  const Tensor per_channel = f32({3, 1, 1}, device);
  for (const Tensor& y : {relu(x), x + x, per_channel * x, x * 2.0, avg_pool2d(x, 2),
                          conv2d(x, f32({4, 3, 3, 3}, device), {}), maximum(x, per_channel)}) {
    EXPECT_TRUE(y.is_contiguous(MemoryFormat::channels_last)) << y.describe() << y.strides().to_string();
  }
}

TEST(Operations, WorkOnIntegersAndEmptyTensors) {
  const auto device = make_device("cpu");
  const Tensor two = Tensor::full({2}, 2, device, DType::i64);
  EXPECT_EQ((two + two * two).to_vector<std::int64_t>(), (std::vector<std::int64_t>{6, 6}));
  EXPECT_EQ(sum(two).item(), 4);
  EXPECT_EQ((f32({0, 3}, device) + f32({3}, device)).numel(), 0);
  EXPECT_EQ(sum(f32({0, 3}, device), {0}).to_vector<float>(), (std::vector<float>{0, 0, 0}));
  const Tensor scores = Tensor::from_data({1.0F, 3.0F, 3.0F, 0.0F, -1.0F, -2.0F}, {2, 3}, device);
  EXPECT_EQ(argmax(scores).to_vector<std::int64_t>(), (std::vector<std::int64_t>{1, 0}));
}

}  // namespace
}  // namespace dtrain
