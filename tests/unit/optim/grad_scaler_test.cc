// Loss scaling: PyTorch's recorded sequence, skipped steps that leave nothing behind, and its way through a
// checkpoint.
#include "runtime/optim/guard/grad_scaler.h"

#include <gtest/gtest.h>

#include <fstream>
#include <limits>

#include "runtime/base/error.h"
#include "runtime/optim/adamw.h"
#include "runtime/optim/sgd.h"
#include "tests/support/golden.h"

namespace dtrain {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class GradScalerTest : public ::testing::Test {
 protected:
  Tensor parameter(std::initializer_list<float> values) {
    Tensor tensor = Tensor::from_data(values, {static_cast<std::int64_t>(values.size())}, device_);
    tensor.set_requires_grad(true);
    return tensor;
  }
  void set_grad(Tensor& tensor, std::initializer_list<float> values) {
    tensor.zero_grad();
    tensor.set_grad(Tensor::from_data(values, tensor.shape(), device_));
  }
  /// One step of everything with the given (scaled) gradient.
  void step(GradScaler& scaler, Optimizer& optimizer, Tensor& tensor, std::initializer_list<float> grad) {
    set_grad(tensor, grad);
    const std::vector<Tensor> gradients = {tensor.grad()};
    scaler.unscale(gradients);
    optimizer.step();
    scaler.update();
  }
  std::shared_ptr<Device> device_ = make_device("cpu");
};

TEST_F(GradScalerTest, FollowsPyTorchsSequence) {
  const test::Golden golden = test::Golden(DTRAIN_GOLDEN)["scaler"];
  GradScaler scaler(device_, {.initial_scale = golden["init"],
                              .growth = golden["growth"],
                              .backoff = golden["backoff"],
                              .growth_interval = golden["growth_interval"]});
  const auto finite = golden["finite"].get<std::vector<bool>>();
  const auto expected = golden["scale_after"].get<std::vector<double>>();
  std::int64_t skipped = 0;
  for (std::size_t i = 0; i < finite.size(); ++i) {
    const std::vector<Tensor> gradients = {
        Tensor::from_data({1.0F, finite[i] ? 2.0F : kInfinity, 3.0F}, {3}, device_)};
    scaler.unscale(gradients);
    scaler.update();
    skipped += finite[i] ? 0 : 1;
    EXPECT_EQ(scaler.scale(), expected[i]) << "step " << i;
    EXPECT_EQ(scaler.skipped(), skipped) << "step " << i;
  }
}

TEST_F(GradScalerTest, SeesEveryKindOfOverflowInAnyGradient) {
  for (const float bad : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
    GradScaler scaler(device_);
    const std::vector<Tensor> gradients = {Tensor::ones({40}, device_), Tensor(),
                                           Tensor::from_data({0.0F, bad}, {2}, device_)};
    scaler.unscale(gradients);
    scaler.update();
    EXPECT_EQ(scaler.skipped(), 1) << bad;
    EXPECT_EQ(scaler.scale(), 32768) << bad;
  }
}

TEST_F(GradScalerTest, UnscalesByTheInverse) {
  GradScaler scaler(device_, {.initial_scale = 3});
  const std::vector<Tensor> gradients = {Tensor::from_data({6.0F, 1.0F}, {2}, device_)};
  scaler.unscale(gradients);
  const float inverse = static_cast<float>(1.0 / 3.0);
  EXPECT_EQ(gradients[0].to_vector<float>(), (std::vector<float>{6.0F * inverse, inverse}));
  EXPECT_EQ(scaler.scale_seed(0.5).item(), 1.5);
}

/// The same gradients with and without steps that overflow between them give the same parameters.
template <class Make>
void expect_skips_leave_no_trace(const std::shared_ptr<Device>& device, Make make) {
  const auto run = [&](bool with_overflows) {
    Tensor tensor = Tensor::from_data({1.0F, -2.0F}, {2}, device);
    tensor.set_requires_grad(true);
    GradScaler scaler(device, {.initial_scale = 1, .growth_interval = 100});
    const auto optimizer = make(tensor);
    scaler.attach(*optimizer);
    const auto apply = [&](float a, float b) {
      const auto factor = static_cast<float>(scaler.scale());
      tensor.zero_grad();
      tensor.set_grad(Tensor::from_data({a * factor, b * factor}, {2}, device));
      const std::vector<Tensor> gradients = {tensor.grad()};
      scaler.unscale(gradients);
      optimizer->step();
      scaler.update();
    };
    if (with_overflows) apply(kInfinity, 0);
    if (with_overflows) apply(0, -kInfinity);
    apply(0.5F, 0.25F);
    if (with_overflows) apply(kInfinity, kInfinity);
    apply(-1.0F, 2.0F);
    auto result = tensor.to_vector<float>();
    for (const auto& [name, state] : optimizer->named_state()) {
      for (const float value : state.template to_vector<float>()) result.push_back(value);
    }
    return result;
  };
  EXPECT_EQ(run(true), run(false));
}

TEST_F(GradScalerTest, SkippedStepsLeaveNoTrace) {
  expect_skips_leave_no_trace(device_, [](const Tensor& tensor) {
    return std::make_unique<Sgd>(Sgd::NamedTensors{{"p", tensor}},
                                 SgdOptions{.lr = 0.1, .momentum = 0.9, .dampening = 0.5});
  });
  expect_skips_leave_no_trace(device_, [](const Tensor& tensor) {
    return std::make_unique<AdamW>(AdamW::NamedTensors{{"p", tensor}}, AdamWOptions{.lr = 0.1});
  });
}

TEST_F(GradScalerTest, NoBuffersAreSavedWhileAllWasSkipped) {
  Tensor tensor = parameter({1, 2});
  Sgd optimizer({{"p", tensor}}, {.lr = 0.1, .momentum = 0.9});
  GradScaler scaler(device_);
  scaler.attach(optimizer);
  step(scaler, optimizer, tensor, {kInfinity, 0});
  EXPECT_TRUE(optimizer.named_state().empty());
  step(scaler, optimizer, tensor, {1, 1});
  EXPECT_EQ(optimizer.named_state().size(), 1U);
  EXPECT_EQ(scaler.skipped(), 1);
}

TEST_F(GradScalerTest, ComesBackFromACheckpoint) {
  GradScaler scaler(device_, {.growth_interval = 3});
  const std::vector<Tensor> good = {Tensor::ones({1}, device_)},
                            bad = {Tensor::full({1}, kInfinity, device_)};
  for (const auto* gradients : {&bad, &good, &good}) {
    scaler.unscale(*gradients);
    scaler.update();
  }
  GradScaler other(device_, {.growth_interval = 3});
  other.load_state(scaler.state());
  EXPECT_EQ(other.state(), scaler.state());
  EXPECT_EQ(other.tracker(), 2);
  EXPECT_EQ(other.skipped(), 1);
  other.unscale(good);
  other.update();
  EXPECT_EQ(other.scale(), 65536);
  EXPECT_THROW(other.load_state({{"scale", "1"}}), UsageError);
  EXPECT_THROW(other.load_state({{"scale", "x"}, {"tracker", "0"}, {"skipped", "0"}}), UsageError);
}

// A scale of 0 would make every gradient 0, and its inverse infinite, for good.
TEST_F(GradScalerTest, FallsToALeastScaleAndNoFurther) {
  Tensor tensor = parameter({1, 2});
  Sgd optimizer({{"p", tensor}}, {.lr = 0.1});
  GradScaler scaler(device_);
  scaler.attach(optimizer);
  for (int i = 0; i < 300; ++i) step(scaler, optimizer, tensor, {kInfinity, 0});
  EXPECT_EQ(scaler.scale(), 1.0 / 16384);
  EXPECT_EQ(scaler.skipped(), 300);
  GradScaler next(device_);
  next.load_state(scaler.state());
  EXPECT_EQ(next.scale(), 1.0 / 16384);
  // What was saved before there was a least scale.
  next.load_state({{"scale", "0"}, {"tracker", "0"}, {"skipped", "300"}});
  EXPECT_EQ(next.scale(), 1.0 / 16384);
  next.attach(optimizer);
  step(next, optimizer, tensor, {1.0F / 16384, 0});
  EXPECT_FLOAT_EQ(tensor.to_vector<float>()[0], 0.9F);
}

TEST_F(GradScalerTest, RefusesSenselessOptions) {
  EXPECT_THROW(GradScaler(device_, {.initial_scale = 0}), UsageError);
  EXPECT_THROW(GradScaler(device_, {.growth = 1}), UsageError);
  EXPECT_THROW(GradScaler(device_, {.backoff = 1}), UsageError);
  EXPECT_THROW(GradScaler(device_, {.growth_interval = 0}), UsageError);
  EXPECT_THROW(GradScaler(device_, {.least_scale = 0}), UsageError);
  EXPECT_THROW(GradScaler(device_, {.initial_scale = 1, .least_scale = 2}), UsageError);
}

}  // namespace
}  // namespace dtrain
