// Clipping: what it leaves alone, gradients that are missing or not finite, and that it needs no wait.
#include "runtime/optim/clip.h"

#include <gtest/gtest.h>

#include <cmath>

#include "runtime/base/error.h"
#include "tests/support/tape_device.h"

namespace dtrain {
namespace {

class ClipTest : public testing::Test {
 protected:
  Tensor numbers(std::initializer_list<float> values) {
    return Tensor::from_data(values, {static_cast<std::int64_t>(values.size())}, device_);
  }
  std::shared_ptr<Device> device_ = make_device("cpu");
};

TEST_F(ClipTest, LeavesSmallGradientsAlone) {
  const std::vector<Tensor> grads = {numbers({3, 0}), Tensor(), numbers({0, 4})};
  EXPECT_EQ(clip_grad_norm(grads, 6).item(), 5);
  EXPECT_EQ(grads[0].to_vector<float>(), (std::vector<float>{3, 0}));
  EXPECT_EQ(clip_grad_norm(grads, 2.5, NormKind::largest).item(), 4);
  EXPECT_NEAR(total_norm(grads).item(), 5 * 2.5 / 4, 1e-5);
}

TEST_F(ClipTest, ShowsWhatIsNotFinite) {
  const std::vector<Tensor> grads = {numbers({1, INFINITY}), numbers({1})};
  EXPECT_EQ(clip_grad_norm(grads, 1).item(), INFINITY);
  EXPECT_TRUE(std::isnan(grads[0].to_vector<float>()[1]));
  EXPECT_EQ(grads[1].item(), 0);
  const std::vector<Tensor> unknown = {numbers({NAN, 2}), numbers({1})};
  EXPECT_TRUE(std::isnan(clip_grad_norm(unknown, 1).item()));
  EXPECT_TRUE(std::isnan(total_norm(std::vector<Tensor>{numbers({NAN, 2})}, NormKind::largest).item()));
}

TEST_F(ClipTest, LimitsValues) {
  const std::vector<Tensor> grads = {numbers({-3, 0.25F, 3}), Tensor()};
  const std::uint64_t before = grads[0].version();
  clip_grad_value(grads, 0.5);
  EXPECT_EQ(grads[0].to_vector<float>(), (std::vector<float>{-0.5F, 0.25F, 0.5F}));
  EXPECT_GT(grads[0].version(), before);
}

TEST_F(ClipTest, CountsLowPrecisionExactly) {
  const std::vector<Tensor> grads = {Tensor::full({1000}, 1, device_, DType::bf16)};
  EXPECT_NEAR(clip_grad_norm(grads, 1).item(), std::sqrt(1000.0), 1e-4);
  EXPECT_EQ(grads[0].dtype(), DType::bf16);
}

TEST_F(ClipTest, RefusesNonsense) {
  const std::vector<Tensor> grads = {numbers({1})};
  EXPECT_THROW(clip_grad_norm(grads, -1), UsageError);
  EXPECT_THROW(clip_grad_norm(grads, NAN), UsageError);
  EXPECT_THROW(clip_grad_value(grads, -1), UsageError);
  EXPECT_THROW(total_norm(std::vector<Tensor>{}), UsageError);
  EXPECT_THROW(total_norm(std::vector<Tensor>{Tensor()}), UsageError);
}

// The tape device refuses to wait while it records.
TEST(Clip, CanBeRecorded) {
  const auto device = std::make_shared<test::TapeDevice>();
  const std::vector<Tensor> grads = {Tensor::full({4}, 1, device)};
  Tensor norm;
  const auto graph = device->record([&] { norm = clip_grad_norm(grads, 1); });
  Tensor first = grads[0];
  first.fill(3);
  graph->launch(device->compute_stream());
  EXPECT_EQ(norm.item(), 6);
  EXPECT_NEAR(grads[0].to_vector<float>()[0], 0.5, 1e-6);
}

}  // namespace
}  // namespace dtrain
