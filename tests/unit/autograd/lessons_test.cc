// The one-liners that lessons on deep learning teach tensors with, as they are written in C++: each compiles
// from the one header and has PyTorch's value. Rows of what repr() would show are written as text.
#include <gtest/gtest.h>

#include <algorithm>

#include "dtrain.h"

namespace dtrain {
namespace {

/// What to_string() gives of a tensor, without "tensor(" and the line breaks.
std::string shown(const Tensor& x) {
  std::string text = to_string(x), plain;
  for (const char c : text) {
    if (c == '\n' || (c == ' ' && !plain.empty() && plain.back() == ' ')) continue;
    plain += c;
  }
  return plain.substr(7, plain.size() - 8);
}

TEST(Lessons, CreateTensors) {
  EXPECT_EQ(shown(arange(4)), "[0, 1, 2, 3]");
  EXPECT_EQ(shown(arange(1, 7, 2)), "[1, 3, 5]");
  EXPECT_EQ(shown(arange(0, 1, 0.25)), "[0.0000, 0.2500, 0.5000, 0.7500]");
  EXPECT_EQ(shown(zeros({2, 3})), "[[0., 0., 0.], [0., 0., 0.]]");
  EXPECT_EQ(shown(ones({2, 4})), "[[1., 1., 1., 1.], [1., 1., 1., 1.]]");
  EXPECT_EQ(shown(full({2}, 7)), "[7, 7]");
  EXPECT_EQ(shown(full({2}, 0.5)), "[0.5000, 0.5000]");
  EXPECT_EQ(shown(eye(2)), "[[1., 0.], [0., 1.]]");
  EXPECT_EQ(shown(linspace(0, 1, 5)), "[0.0000, 0.2500, 0.5000, 0.7500, 1.0000]");
  EXPECT_EQ(shown(Tensor({{2, 1, 4, 3}, {1, 2, 3, 4}})), "[[2, 1, 4, 3], [1, 2, 3, 4]]");
  EXPECT_EQ(shown(Tensor({1.0, 2, 4, 8})), "[1., 2., 4., 8.]");
  EXPECT_EQ(shown(Tensor({true, false})), "[ True, False]");
  EXPECT_EQ(Tensor(3.5).item(), 3.5);
  EXPECT_EQ(Tensor(3.5).shape(), Dims());
  EXPECT_EQ(Tensor({{{1}, {2}}, {{3}, {4}}}).shape(), (Dims{2, 2, 1}));
  EXPECT_EQ(shown(zeros_like(Tensor({1, 2}))), "[0, 0]");
  EXPECT_EQ(shown(ones_like(Tensor({1.5, 2}))), "[1., 1.]");
  EXPECT_EQ(shown(full_like(Tensor({1, 2}), 3)), "[3, 3]");
  EXPECT_EQ(arange(12).numel(), 12);
  EXPECT_EQ(arange(12).dtype(), DType::i64);
  EXPECT_EQ(arange(12).reshape({3, -1}).shape(), (Dims{3, 4}));
}

/// torch.manual_seed(1), then each of these.
TEST(Lessons, DrawPyTorchsNumbers) {
  manual_seed(1);
  EXPECT_EQ(shown(rand({3})), "[0.7576, 0.2793, 0.4031]");
  manual_seed(1);
  EXPECT_EQ(shown(randn({3})), "[0.6614, 0.2669, 0.0617]");
  manual_seed(1);
  EXPECT_EQ(shown(randperm(5)), "[0, 4, 2, 3, 1]");
  manual_seed(1);
  EXPECT_EQ(shown(randint(0, 10, {4})), "[5, 9, 4, 8]");
  Generator generator(1);
  EXPECT_EQ(shown(rand({3}, generator)), "[0.7576, 0.2793, 0.4031]");
}

TEST(Lessons, Calculate) {
  const Tensor x({1.0, 2, 4, 8}), y({2, 2, 2, 2.0});
  EXPECT_EQ(shown(x + y), "[ 3., 4., 6., 10.]");
  EXPECT_EQ(shown(x - y), "[-1., 0., 2., 6.]");
  EXPECT_EQ(shown(x * y), "[ 2., 4., 8., 16.]");
  EXPECT_EQ(shown(x / y), "[0.5000, 1.0000, 2.0000, 4.0000]");
  EXPECT_EQ(shown(pow(x, y)), "[ 1., 4., 16., 64.]");
  EXPECT_EQ(shown(exp(x - x)), "[1., 1., 1., 1.]");
  EXPECT_EQ(shown(10 + x), "[11., 12., 14., 18.]");
  EXPECT_EQ(shown(10 - x), "[9., 8., 6., 2.]");
  EXPECT_EQ(shown(10 / x), "[10.0000, 5.0000, 2.5000, 1.2500]");
  EXPECT_EQ(shown(-x), "[-1., -2., -4., -8.]");
  EXPECT_EQ(shown(10 - arange(3)), "[10, 9, 8]");
  EXPECT_EQ(shown(8 / Tensor({1, 2, 4})), "[8., 4., 2.]");
  EXPECT_EQ(shown(x.pow(2).sqrt()), "[1., 2., 4., 8.]");
  EXPECT_EQ(shown((-x).abs().log().exp()), "[1., 2., 4., 8.]");
  // Broadcasting
  EXPECT_EQ(shown(arange(3).reshape({3, 1}) + arange(2).reshape({1, 2})), "[[0, 1], [1, 2], [2, 3]]");
}

TEST(Lessons, Compare) {
  const Tensor x({{2, 1, 4}, {1, 2, 3}}), y({{2, 1, 0}, {1, 2, 4}});
  EXPECT_EQ(shown(x == y), "[[ True, True, False], [ True, True, False]]");
  EXPECT_EQ(shown(x != y), "[[False, False, True], [False, False, True]]");
  EXPECT_EQ(shown(x < y), "[[False, False, False], [False, False, True]]");
  EXPECT_EQ(shown(x > 1), "[[ True, False, True], [False, True, True]]");
  EXPECT_EQ(shown(2 >= x), "[[ True, True, False], [ True, True, False]]");
  EXPECT_EQ(shown(x <= 1.5), "[[False, True, False], [ True, False, False]]");
  EXPECT_EQ((x == y).sum().item(), 4);
  EXPECT_EQ((x == y).sum().dtype(), DType::i64);
  EXPECT_EQ((x == y).to(DType::f32).mean().item(), 4.0F / 6);
  EXPECT_EQ(shown(where(x > 2, x, zeros_like(x))), "[[0, 0, 4], [0, 0, 3]]");
}

TEST(Lessons, IndexAndSlice) {
  Tensor x = arange(12).reshape({3, 4});
  EXPECT_EQ(shown(x[-1]), "[ 8, 9, 10, 11]");
  EXPECT_EQ(x[0][1].item(), 1);
  EXPECT_EQ(shown(x[Slice(1, 3)]), "[[ 4, 5, 6, 7], [ 8, 9, 10, 11]]");
  EXPECT_EQ(shown(x.index({Slice(), 1})), "[1, 5, 9]");
  EXPECT_EQ(shown(x.index({Slice(0, 2), Slice(1, -1)})), "[[1, 2], [5, 6]]");
  EXPECT_EQ(shown(x.index({2, Slice(0, Slice::kEnd, 2)})), "[ 8, 10]");
  EXPECT_EQ(shown(x[Tensor({2, 0})]), "[[ 8, 9, 10, 11], [ 0, 1, 2, 3]]");
  x[1][2] = 17;
  EXPECT_EQ(shown(x[1]), "[ 4, 5, 17, 7]");
  x[Slice(0, 2)] = 12;
  EXPECT_EQ(shown(x.index({Slice(), 0})), "[12, 12, 8]");
  x[2] = Tensor({1, 2, 3, 4});
  EXPECT_EQ(shown(x[2]), "[1, 2, 3, 4]");
  x[0] += 1;
  EXPECT_EQ(shown(x[0]), "[13, 13, 13, 13]");
  // Another tensor for the handle, not for what it showed
  const Tensor before = x;
  x = zeros({1});
  EXPECT_EQ(before[2][3].item(), 4);
}

TEST(Lessons, WriteInPlace) {
  Tensor x({1.0, 2}), same = x;
  x += Tensor({10.0, 20});
  x *= 2;
  x -= 1;
  x /= 2;
  EXPECT_EQ(shown(x), "[10.5000, 21.5000]");
  EXPECT_TRUE(same.shares_storage(x)) << "x += y makes no new tensor";
  EXPECT_EQ(shown(same), "[10.5000, 21.5000]");
  Tensor z = zeros_like(x);
  z[Slice()] = x + x;
  EXPECT_EQ(shown(z), "[21., 43.]");
  x += x[Slice(0, 1)];  // of its own memory
  EXPECT_EQ(shown(x), "[21., 32.]");
  Tensor counts({1, 2});
  counts += 1;
  counts *= Tensor({3, 4});
  EXPECT_EQ(shown(counts), "[ 6, 12]");
}

TEST(Lessons, Reduce) {
  const Tensor a = arange(6).to(DType::f32).reshape({2, 3});
  EXPECT_EQ(a.sum().item(), 15);
  EXPECT_EQ(shown(a.sum(0)), "[3., 5., 7.]");
  EXPECT_EQ(shown(a.sum(1, true)), "[[ 3.], [12.]]");
  EXPECT_EQ(a.sum({0, 1}).item(), 15);
  EXPECT_EQ(a.mean().item(), 2.5);
  EXPECT_EQ(shown(a.mean(0)), "[1.5000, 2.5000, 3.5000]");
  EXPECT_EQ(a.max().item(), 5);
  EXPECT_EQ(a.min().item(), 0);
  EXPECT_EQ(shown(a.max(1).values), "[2., 5.]");
  EXPECT_EQ(shown(a.min(0).indices), "[0, 0, 0]");
  EXPECT_EQ(a.argmax().item(), 5);
  EXPECT_EQ(shown(a.argmax(1)), "[2, 2]");
  EXPECT_EQ(shown(a.cumsum(0)), "[[0., 1., 2.], [3., 5., 7.]]");
  EXPECT_EQ(Tensor({3.0, -4}).norm().item(), 5);
  EXPECT_EQ(Tensor({3.0, -4}).norm(1).item(), 7);
  EXPECT_EQ(Tensor({1.0, 2, 3}).std().item(), 1);
  EXPECT_EQ(Tensor({1.0, 2, 3}).var({}, 0).item(), static_cast<double>(2.0F / 3));
  EXPECT_EQ(Tensor({1.0, 2, 4}).prod().item(), 8);
  EXPECT_EQ(shown(a / a.sum(1, true)), "[[0.0000, 0.3333, 0.6667], [0.2500, 0.3333, 0.4167]]");
}

TEST(Lessons, LinearAlgebra) {
  const Tensor a = arange(6).to(DType::f32).reshape({2, 3}), x = arange(3).to(DType::f32);
  EXPECT_EQ(shown(a.T()), "[[0., 3.], [1., 4.], [2., 5.]]");
  EXPECT_EQ(matmul(x, x).item(), 5);
  EXPECT_EQ((x * x).sum().item(), 5);
  EXPECT_EQ(shown(matmul(a, x)), "[ 5., 14.]");
  EXPECT_EQ(shown(a.matmul(a.T())), "[[ 5., 14.], [14., 50.]]");
  EXPECT_EQ(shown(einsum("ij,kj->ik", {a, a})), "[[ 5., 14.], [14., 50.]]");
  EXPECT_EQ(shown(a.transpose(0, 1)[0]), "[0., 3.]");
  const Tensor symmetric({{1, 2}, {2, 3}});
  EXPECT_EQ(shown(symmetric == symmetric.T()), "[[True, True], [True, True]]");
}

TEST(Lessons, JoinAndMask) {
  const Tensor x({{1, 2}, {3, 4}});
  EXPECT_EQ(shown(cat({x, x}, 0)), "[[1, 2], [3, 4], [1, 2], [3, 4]]");
  EXPECT_EQ(shown(cat({x, x}, 1)), "[[1, 2, 1, 2], [3, 4, 3, 4]]");
  EXPECT_EQ(stack({x, x}).shape(), (Dims{2, 2, 2}));
  EXPECT_EQ(shown(one_hot(Tensor({0, 2}), 3)), "[[1, 0, 0], [0, 0, 1]]");
  EXPECT_EQ(shown(tril(x)), "[[1, 0], [3, 4]]");
  EXPECT_EQ(shown(x.masked_fill(x > 2, 0)), "[[1, 2], [0, 0]]");
  EXPECT_EQ(shown(flip(x, {0})), "[[3, 4], [1, 2]]");
  EXPECT_EQ(shown(roll(x, {1})), "[[4, 1], [2, 3]]");
  EXPECT_EQ(shown(isfinite(Tensor({1.0, 0}) / Tensor({0.0, 1}))), "[False, True]");
}

TEST(Lessons, Differentiate) {
  Tensor x = arange(4).to(DType::f32).set_requires_grad();
  Tensor y = 2 * matmul(x, x);
  y.backward();
  EXPECT_EQ(shown(x.grad() == 4 * x), "[True, True, True, True]");
  x.zero_grad();
  x.sum().backward();
  EXPECT_EQ(shown(x.grad()), "[1., 1., 1., 1.]");
  x.zero_grad();
  const Tensor u = (x * x).detach();
  (u * x).sum().backward();
  EXPECT_EQ(shown(x.grad() == u), "[True, True, True, True]");
  EXPECT_EQ(x[2].detach().item(), 2);
}

/// A sum of losses is what a += b is most often written for.
TEST(Lessons, AddUpLosses) {
  Tensor w = ones({2}).set_requires_grad();
  Tensor total = zeros({});
  total += (w * w).sum();
  total += 3 * w.sum();
  total /= 2;
  total.backward();
  EXPECT_EQ(shown(w.grad()), "[2.5000, 2.5000]");
}

TEST(Lessons, RefuseWhatPyTorchRefuses) {
  Tensor w = ones({2}).set_requires_grad();
  EXPECT_THROW(w += 1, UsageError) << "a leaf that requires a gradient";
  EXPECT_THROW(w[0] = 1, UsageError);
  {
    const NoGrad no_grad;
    w -= 0.5 * w;
  }
  EXPECT_EQ(shown(w.detach()), "[0.5000, 0.5000]");
  Tensor sum_of_both = w + w;
  const Tensor seen = sum_of_both;
  EXPECT_THROW(sum_of_both += 1, UsageError) << "`seen` would not be the same tensor any more";
  Tensor small = ones({2});
  EXPECT_THROW(small += ones({3, 2}), UsageError) << "it would have to grow";
  Tensor whole({1, 2});
  EXPECT_THROW(whole += 0.5, UsageError);
  EXPECT_THROW(whole /= 2, UsageError);
  EXPECT_EQ(shown(whole), "[1, 2]");
  Tensor broadcast = ones({1}).expand({3});
  EXPECT_THROW(broadcast += 1, UsageError);
  EXPECT_THROW(Tensor({{1, 2}, {3}}), UsageError);
  EXPECT_THROW(arange(8).reshape({2, 2, 2}).T(), UsageError);
  EXPECT_THROW(arange(3).index({0, 0}), UsageError);
}

TEST(Lessons, ChooseADevice) {
  const std::shared_ptr<Device> other = make_device("cpu:1");
  {
    const DefaultDevice here(other);
    EXPECT_EQ(ones({2}).shared_device(), other);
    EXPECT_EQ(Tensor({1, 2}).shared_device(), other);
    EXPECT_EQ((ones({2}) + 1).shared_device(), other);
  }
  EXPECT_EQ(ones({2}).shared_device(), default_device());
  EXPECT_EQ(Tensor({1.0}, other).shared_device(), other);
  const auto devices = try_all_gpus();
  ASSERT_EQ(static_cast<int>(devices.size()), std::max(device_count(), 1));
  EXPECT_EQ(devices[0]->type() == DeviceType::cpu, device_count() == 0);
  EXPECT_EQ(try_gpu(1000)->type(), DeviceType::cpu);
  EXPECT_THROW(try_gpu(-1), UsageError);
}

TEST(Lessons, FindTheBuiltInNetworks) {  // declared by the one header; dtrain::models has them
  EXPECT_EQ((NetworkInput{.channels = 3, .classes = 7}.classes), 7);
}

TEST(Lessons, LoadTensors) {
  const Tensor x = arange(10).to(DType::f32).reshape({5, 2}), y({0, 2, 1, 0, 2});
  const auto pairs = tensor_dataset({{"x", x}, {"label", y}});
  EXPECT_EQ(pairs->size(), 5);
  EXPECT_EQ(describe(pairs->fields()), "x float32 [2], label int64 []");
  EXPECT_EQ(pairs->fields()[1].values, 3);
  DataLoader batches(pairs, {.batch_size = 2});
  std::string seen;
  for (const BatchTensors& batch : batches) seen += shown(batch["x"]) + shown(batch["label"]) + " ";
  EXPECT_EQ(seen, "[[0., 1.], [2., 3.]][0, 2] [[4., 5.], [6., 7.]][1, 0] [[8., 9.]][2] ");
  EXPECT_EQ(batches.size(), 3);
  const auto nested = [&] {
    for (const BatchTensors& batch : batches) {
      seen = shown(batch["x"]);
      for (const BatchTensors& other : batches) seen += shown(other["x"]);
    }
  };
  EXPECT_THROW(nested(), UsageError) << "the inner loop has taken the batches";
  EXPECT_EQ(seen, "[[0., 1.], [2., 3.]][[0., 1.], [2., 3.]][[4., 5.], [6., 7.]][[8., 9.]]") << "once";
  EXPECT_EQ(tensor_dataset({{"t", x.T()}})->size(), 2) << "views are read as they are";
  EXPECT_THROW(tensor_dataset({}), UsageError);
  EXPECT_THROW(tensor_dataset({{"x", x}, {"y", arange(4)}}), UsageError);
  EXPECT_THROW(tensor_dataset({{"label", Tensor({-1, 0})}}), UsageError);
}

}  // namespace
}  // namespace dtrain
