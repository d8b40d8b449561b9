// The tape: what is recorded, how often it can be used, what modifications it notices, what memory it keeps.
#include <gtest/gtest.h>

#include "runtime/autograd/gradients.h"
#include "runtime/base/error.h"
#include "tests/support/message_of.h"

namespace dtrain {
namespace {

using test::message_of;

class Backward : public testing::Test {
 protected:
  Tensor leaf(std::initializer_list<float> values) {
    Tensor tensor = constant(values);
    tensor.set_requires_grad(true);
    return tensor;
  }
  Tensor constant(std::initializer_list<float> values) {
    return Tensor::from_data(values, {static_cast<std::int64_t>(values.size())}, device_);
  }

  std::shared_ptr<Device> device_ = make_device("cpu");
};

using Floats = std::vector<float>;

TEST_F(Backward, HandKnownValues) {
  Tensor x = leaf({2, 3}), y = leaf({5, 7});
  const Tensor z = x * y + x * x;  // dz/dx = y + 2x, dz/dy = x
  sum(z).backward();
  EXPECT_EQ(x.grad().to_vector<float>(), (Floats{9, 13}));
  EXPECT_EQ(y.grad().to_vector<float>(), (Floats{2, 3}));
}

TEST_F(Backward, AccumulatesUntilZeroGrad) {
  Tensor x = leaf({2});
  for (int i = 0; i < 3; ++i) sum(x * 4.0).backward();
  EXPECT_EQ(x.grad().item(), 12);
  x.zero_grad();
  EXPECT_FALSE(x.grad().defined());
  sum(x * x).backward();
  EXPECT_EQ(x.grad().item(), 4);
}

TEST_F(Backward, GradientsOfSiblingsDoNotShareMemory) {
  Tensor a = leaf({1, 1}), b = leaf({1, 1});
  sum(a + b).backward();
  sum(a).backward();
  EXPECT_EQ(a.grad().to_vector<float>(), (Floats{2, 2}));
  EXPECT_EQ(b.grad().to_vector<float>(), (Floats{1, 1}));
}

TEST_F(Backward, FromNonScalarsNeedsASeed) {
  Tensor x = leaf({1, 2});
  const Tensor y = x * x;
  EXPECT_NE(message_of([&] { y.backward(); }).find("more than one element"), std::string::npos);
  EXPECT_NE(message_of([&] { y.backward(constant({1})); }).find("expected float32 [2]"), std::string::npos);
  const Tensor seed = constant({10, 100});
  y.backward(seed);
  EXPECT_EQ(x.grad().to_vector<float>(), (Floats{20, 400}));
  EXPECT_EQ(seed.to_vector<float>(), (Floats{10, 100}));
}

TEST_F(Backward, SeedIsNotTakenOver) {
  Tensor x = leaf({1, 2});
  const Tensor seed = constant({10, 100});
  (x + 0.0).backward(seed);
  relu(x).backward(seed);
  EXPECT_EQ(seed.to_vector<float>(), (Floats{10, 100}));
  EXPECT_EQ(x.grad().to_vector<float>(), (Floats{20, 200}));
}

TEST_F(Backward, OfALeafIsItsSeed) {
  Tensor x = leaf({3});
  x.backward();
  EXPECT_EQ(x.grad().item(), 1);
}

TEST_F(Backward, NothingIsRecordedUnderNoGradOrAfterDetach) {
  Tensor x = leaf({2});
  {
    const NoGrad no_grad;
    EXPECT_FALSE((x * x).requires_grad());
    const GradMode again(true);
    EXPECT_TRUE((x * x).requires_grad());
  }
  EXPECT_FALSE((x.detach() * 2.0).requires_grad());
  EXPECT_NE(message_of([&] { x.detach().backward(); }).find("requires a gradient"), std::string::npos);
  sum(x * x.detach()).backward();
  EXPECT_EQ(x.grad().item(), 2);
}

TEST_F(Backward, GraphIsUsedUpUnlessRetained) {
  Tensor x = leaf({3});
  const Tensor y = sum(x * x);
  y.backward({.retain_graph = true});
  y.backward();
  EXPECT_EQ(x.grad().item(), 12);
  const std::string message = message_of([&] { y.backward(); });
  EXPECT_NE(message.find("already used"), std::string::npos) << message;
  EXPECT_NE(message.find("retain_graph"), std::string::npos) << message;
  EXPECT_EQ(x.grad().item(), 12);
}

TEST_F(Backward, NoticesSavedInputModifiedInPlace) {
  Tensor x = leaf({3}), factor = constant({5});
  const Tensor y = sum(x * factor);
  factor.scale_in_place(2);
  const std::string message = message_of([&] { y.backward(); });
  EXPECT_EQ(message.find("backward of mul: its input float32 [1] was modified in place"), 0U) << message;
}

TEST_F(Backward, NoticesSavedOutputModifiedThroughAView) {
  Tensor x = leaf({3, 4});
  const Tensor y = exp(x);
  {
    const NoGrad no_grad;
    y.view({2, 1}).fill(0);
  }
  EXPECT_EQ(message_of([&] { sum(y).backward(); }).find("backward of exp: its result"), 0U);
}

TEST_F(Backward, ModificationAfterBackwardIsFine) {
  Tensor x = leaf({3});
  const Tensor y = sum(x * x);
  y.backward();
  const NoGrad no_grad;
  x.add_in_place(x.grad(), -0.1);
  EXPECT_NEAR(x.item(), 2.4, 1e-6);
}

TEST_F(Backward, InPlaceOnTrackedTensorsIsRefused) {
  Tensor x = leaf({3}), plain = constant({1});
  EXPECT_NE(message_of([&] { x.fill(0); }).find("while gradients are recorded"), std::string::npos);
  EXPECT_NE(message_of([&] { plain.copy_from(x); }).find("the source requires one"), std::string::npos);
  plain.copy_from(x.detach());
  EXPECT_EQ(plain.item(), 3);
}

TEST_F(Backward, SecondDerivativeOfACube) {
  Tensor x = leaf({2});
  const std::vector<Tensor> of{x};
  const Tensor first = gradients(sum(x * x * x), of, {}, {.create_graph = true})[0];
  const Tensor second = gradients(sum(first), of, {}, {.create_graph = true})[0];
  const Tensor third = gradients(sum(second), of)[0];
  EXPECT_EQ(first.item(), 12);
  EXPECT_EQ(second.item(), 12);
  EXPECT_EQ(third.item(), 6);
  EXPECT_FALSE(x.grad().defined());
}

TEST_F(Backward, CreateGraphAccumulatesDifferentiableGradients) {
  Tensor x = leaf({2});
  sum(x * x * x).backward({.create_graph = true});
  const Tensor penalty = sum(square(x.grad()));  // (3x²)², derivative 36x³
  x.zero_grad();
  penalty.backward();
  EXPECT_EQ(x.grad().item(), 288);
  x.zero_grad();  // gradient and leaf hold each other until then
}

TEST_F(Backward, GradientsOfIntermediateAndUnrelatedTensors) {
  Tensor x = leaf({2}), other = leaf({1});
  const Tensor middle = x * 3.0;
  const std::vector<Tensor> of{middle, other, x};
  const auto result = gradients(sum(middle * middle), of);
  EXPECT_EQ(result[0].item(), 12);
  EXPECT_FALSE(result[1].defined());
  EXPECT_EQ(result[2].item(), 36);
  const std::vector<Tensor> constants{constant({1})};
  EXPECT_NE(message_of([&] { gradients(sum(x * 1.0), constants); }).find("does not require"),
            std::string::npos);
}

TEST_F(Backward, DiamondRunsEachOperationOnce) {
  Tensor x = leaf({1});
  Tensor y = x * 1.0;
  for (int i = 0; i < 40; ++i) y = y + y;  // 2⁴⁰ paths
  sum(y).backward();
  EXPECT_EQ(x.grad().item(), static_cast<double>(std::int64_t{1} << 40));
}

TEST_F(Backward, DeepGraphsAreFreedWithoutRecursion) {
  Tensor x = leaf({1});
  Tensor y = x * 1.0;
  for (int i = 0; i < 200000; ++i) y = y + 1.0;
  y = Tensor();
  y = x * 1.0;
  for (int i = 0; i < 100000; ++i) y = square(y);  // saves its inputs
  sum(y).backward();
  EXPECT_TRUE(x.grad().defined());
}

TEST_F(Backward, ReleasesSavedMemoryOnTheWay) {
  const std::int64_t n = 1 << 16;
  const std::size_t bytes = n * sizeof(float);
  Tensor x = Tensor::ones({n}, device_);
  x.set_requires_grad(true);
  const std::size_t before = device_->allocated_bytes();
  {
    Tensor y = x * 1.0;
    for (int i = 0; i < 10; ++i) y = exp(y * 0.1);
    const Tensor loss = sum(y);
    y = Tensor();
    EXPECT_GE(device_->allocated_bytes() - before, 10 * bytes);
    loss.backward();
    EXPECT_LE(device_->allocated_bytes() - before, bytes + 4096);  // the gradient and the loss
  }
  x.zero_grad();
  EXPECT_EQ(device_->allocated_bytes(), before);
}

TEST_F(Backward, IndexModifiedBeforeBackwardIsNoticed) {
  Tensor x = leaf({1, 2, 3});
  Tensor index = Tensor::from_data({std::int64_t{2}, std::int64_t{0}}, {2}, device_);
  const Tensor y = sum(x.index_select(0, index));
  index.fill(1);
  EXPECT_NE(message_of([&] { y.backward(); }).find("index was modified"), std::string::npos);
}

TEST_F(Backward, TiesShareTheGradient) {
  Tensor x = leaf({2, 1, 2}), a = leaf({1}), b = leaf({1});
  sum(amax(x, {0})).backward();
  EXPECT_EQ(x.grad().to_vector<float>(), (Floats{0.5F, 0, 0.5F}));
  sum(maximum(a, b)).backward();
  EXPECT_EQ(a.grad().item(), 0.5);
  EXPECT_EQ(b.grad().item(), 0.5);
}

// A convolution adds to what is there only where it lies in the order of its own result.
TEST_F(Backward, LeavesGradientsLieInMemoryAsTheLeavesDo) {
  for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
    for (const MemoryFormat other : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
      Tensor x = Tensor::full({2, 3, 4, 5}, 3.0, device_).contiguous(format);
      x.set_requires_grad(true);
      const Tensor y = x.contiguous(other);
      for (int i = 0; i < 2; ++i) sum(y * y).backward({.retain_graph = true});
      EXPECT_EQ(x.grad().memory_format(), format);
      EXPECT_EQ(x.grad().to_vector<float>(), Floats(120, 12));
      x.set_grad(y);
      EXPECT_EQ(x.grad().memory_format(), format);
    }
  }
}

TEST_F(Backward, ConvertsGradientsWithTheDtype) {
  Tensor x = leaf({1.5F, -2});
  const Tensor y = x.to(DType::bf16);
  EXPECT_EQ(y.dtype(), DType::bf16);
  sum(y * y).to(DType::f32).backward();
  EXPECT_EQ(x.grad().dtype(), DType::f32);
  EXPECT_EQ(x.grad().to_vector<float>(), (Floats{3, -4}));
  EXPECT_FALSE(x.to(DType::i64).requires_grad());
}

}  // namespace
}  // namespace dtrain
