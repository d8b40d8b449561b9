// Operands of two devices do not meet, whichever operand is the foreign one.
#include <gtest/gtest.h>

#include "runtime/autograd/ops.h"
#include "runtime/base/error.h"
#include "runtime/optim/sgd.h"

namespace dtrain {
namespace {

class TwoDevices : public testing::Test {
 protected:
  std::shared_ptr<Device> device_ = make_device("cpu");
  std::shared_ptr<Device> other_ = make_device("cpu");
  Tensor there(const Dims& shape, DType dtype = DType::f32) { return Tensor::ones(shape, other_, dtype); }
  Tensor here(const Dims& shape, DType dtype = DType::f32) { return Tensor::ones(shape, device_, dtype); }
};

TEST_F(TwoDevices, AreRefusedByName) {
  EXPECT_THROW(cross_entropy(here({2, 3}), there({2}, DType::i64)), UsageError);
  const Tensor x = here({2, 3, 4, 4}), mine = here({3}), theirs = there({3});
  EXPECT_THROW(batch_norm(x, theirs, mine, mine, mine, {}, true), UsageError);
  EXPECT_THROW(batch_norm(x, mine, theirs, mine, mine, {}, true), UsageError);
  EXPECT_THROW(batch_norm(x, mine, mine, theirs, mine, {}, true), UsageError);
  EXPECT_THROW(batch_norm(x, mine, mine, mine, theirs, {}, false), UsageError);
  EXPECT_THROW(batch_norm(x, mine, mine, mine, mine, {}, true, there({2, 3, 4, 4})), UsageError);
  const Tensor low = here({2, 3, 4, 4}, DType::bf16), kernel = here({3, 3, 3, 3}, DType::bf16);
  EXPECT_THROW(conv2d(low, kernel, theirs), UsageError);
  EXPECT_THROW(linear(here({2, 3}, DType::bf16), here({3, 3}, DType::bf16), theirs), UsageError);
}

// CPUs share the host's memory; what decides whether a step is skipped is on the first one all the same.
TEST_F(TwoDevices, ShareAnOptimizerOnTheHost) {
  Tensor mine = here({2}), theirs = there({2});
  for (Tensor* parameter : {&mine, &theirs}) {
    parameter->set_requires_grad(true);
    sum(*parameter).backward();
  }
  Sgd optimizer({{"mine", mine}, {"theirs", theirs}}, {.lr = 0.5});
  EXPECT_THROW(optimizer.set_gate(there({1}), here({1}, DType::i64)), UsageError);
  optimizer.step();
  EXPECT_EQ(mine.to_vector<float>(), (std::vector<float>{0.5F, 0.5F}));
  EXPECT_EQ(theirs.to_vector<float>(), mine.to_vector<float>());
}

}  // namespace
}  // namespace dtrain
