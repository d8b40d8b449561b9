// Two results that share a part of their graph, backward one by one.
#include <gtest/gtest.h>

#include <vector>

#include "runtime/autograd/ops.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

using Floats = std::vector<float>;

class SharedGraph : public testing::Test {
 protected:
  std::shared_ptr<Device> device_ = make_device("cpu");
  Tensor leaf(const Dims& shape) {
    Tensor tensor = Tensor::ones(shape, device_);
    tensor.set_requires_grad(true);
    return tensor;
  }
};

/// Views, sums and whatever else saves no values has nothing to lose.
TEST_F(SharedGraph, OfOperationsThatSavedNothingServesTwice) {
  const Tensor x = leaf({2, 3});
  const Tensor shared =
      add(mul(x.transpose(0, 1).reshape({6}).slice(0, 1, 5), 2), 1).unsqueeze(0).expand({2, 4});
  sum(shared).backward();
  EXPECT_EQ(x.grad().to_vector<float>(), (Floats{0, 4, 4, 4, 4, 0}));
  mean(neg(shared)).backward();
  EXPECT_EQ(x.grad().to_vector<float>(), (Floats{0, 3.5F, 3.5F, 3.5F, 3.5F, 0}));
}

TEST_F(SharedGraph, OfSavedValuesIsUsedUp) {
  const Tensor x = leaf({3});
  const Tensor shared = exp(x);
  sum(shared).backward();
  EXPECT_THROW(sum(shared).backward(), UsageError);
  const Tensor chosen = x.index_select(0, Tensor::zeros({2}, device_, DType::i64));
  sum(chosen).backward();
  EXPECT_THROW(sum(chosen).backward(), UsageError);
}

TEST_F(SharedGraph, ASecondBackwardFromTheSameSumIsAllowed) {
  const Tensor x = leaf({3}), total = sum(x);
  total.backward();
  total.backward();
  EXPECT_EQ(x.grad().to_vector<float>(), (Floats{2, 2, 2}));
}

/// Values that were saved go with the first backward, though the graph above them stays.
TEST_F(SharedGraph, DoesNotKeepMemory) {
  const Tensor x = leaf({1 << 16});
  const std::size_t before = device_->allocated_bytes();
  const Tensor result = sum(exp(exp(x)), {}, true);
  result.backward(Tensor::ones({1}, device_));
  EXPECT_LE(device_->allocated_bytes(), before + sizeof(float) * ((1 << 16) + 64));  // the gradient
}

}  // namespace
}  // namespace dtrain
