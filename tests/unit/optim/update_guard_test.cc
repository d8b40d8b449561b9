// Gradients that are not finite move nothing, whatever the optimizer, and the flag stays.
#include "runtime/optim/guard/update_guard.h"

#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/optim/adagrad.h"
#include "runtime/optim/adam.h"
#include "runtime/optim/adamw.h"
#include "runtime/optim/layerwise.h"
#include "runtime/optim/rmsprop.h"
#include "runtime/optim/rules/lion.h"
#include "runtime/optim/sgd.h"

namespace dtrain {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// One of each rule for `p`, with state of every kind.
std::vector<std::unique_ptr<Optimizer>> all_rules(const Tensor& p) {
  const NamedTensors named = {{"p", p}};
  std::vector<std::unique_ptr<Optimizer>> all;
  all.push_back(std::make_unique<Sgd>(named, SgdOptions{.lr = 0.1}));
  all.push_back(std::make_unique<Sgd>(named, SgdOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1}));
  all.push_back(std::make_unique<Adam>(named, AdamOptions{.lr = 0.1}));
  all.push_back(std::make_unique<AdamW>(named, AdamWOptions{.lr = 0.1}));
  all.push_back(
      std::make_unique<RmsProp>(named, RmsPropOptions{.lr = 0.1, .momentum = 0.9, .centered = true}));
  all.push_back(std::make_unique<Adagrad>(named, AdagradOptions{.lr = 0.1}));
  all.push_back(std::make_unique<Lion>(named, LionOptions{.lr = 0.1}));
  all.push_back(std::make_unique<Lars>(named, LarsOptions{.lr = 0.1}));
  all.push_back(std::make_unique<Lamb>(named, LambOptions{.lr = 0.1}));
  return all;
}

class UpdateGuardTest : public testing::Test {
 protected:
  Tensor parameter() {
    Tensor tensor = Tensor::from_data({1.0F, -2.0F, 3.0F}, {3}, device_);
    tensor.set_requires_grad(true);
    return tensor;
  }
  void step(Tensor& p, Optimizer& optimizer, UpdateGuard* guard, float gradient) {
    p.zero_grad();
    p.set_grad(Tensor::from_data({0.5F, gradient, -1.0F}, {3}, device_));
    if (guard != nullptr) guard->inspect(optimizer.gradients());
    optimizer.step();
  }
  std::shared_ptr<Device> device_ = make_device("cpu");
};

TEST_F(UpdateGuardTest, LeavesNoBitOfAFiniteStepOtherwise) {
  const std::size_t rules = all_rules(parameter()).size();
  for (std::size_t rule = 0; rule < rules; ++rule) {
    Tensor guarded = parameter(), free = parameter();
    const auto with = std::move(all_rules(guarded)[rule]), without = std::move(all_rules(free)[rule]);
    UpdateGuard guard(device_);
    guard.attach(*with);
    for (const float gradient : {0.25F, -3.0F, 1e-3F}) {
      step(guarded, *with, &guard, gradient);
      step(free, *without, nullptr, gradient);
    }
    EXPECT_FALSE(guard.found_any());
    EXPECT_EQ(guarded.to_vector<float>(), free.to_vector<float>()) << rule;
  }
}

TEST_F(UpdateGuardTest, KeepsParametersAsTheyWereBeforeTheStep) {
  const std::size_t rules = all_rules(parameter()).size();
  for (std::size_t rule = 0; rule < rules; ++rule) {
    for (const float bad : {kInfinity, -kInfinity, kNan}) {
      Tensor p = parameter();
      const auto optimizer = std::move(all_rules(p)[rule]);
      UpdateGuard guard(device_);
      guard.attach(*optimizer);
      step(p, *optimizer, &guard, 0.25F);
      const auto before = p.to_vector<float>();
      step(p, *optimizer, &guard, bad);
      EXPECT_TRUE(guard.found_any());
      EXPECT_EQ(p.to_vector<float>(), before) << rule << " " << bad;
      step(p, *optimizer, &guard, 0.25F);  // queued behind it
      EXPECT_TRUE(guard.found_any());
      EXPECT_EQ(p.to_vector<float>(), before) << rule;
    }
  }
}

// So that who ends with it need not look at gradients before.
TEST_F(UpdateGuardTest, TheUpdateShowsAGradientThatIsNotFinite) {
  const std::size_t rules = all_rules(parameter()).size();
  for (std::size_t rule = 0; rule < rules; ++rule) {
    for (const float bad : {kInfinity, -kInfinity, kNan}) {
      for (const double lr : {0.1, 0.0}) {
        Tensor p = parameter();
        const auto optimizer = std::move(all_rules(p)[rule]);
        UpdateGuard guard(device_);
        guard.attach(*optimizer);
        optimizer->set_lr(lr);
        step(p, *optimizer, nullptr, 0.25F);
        EXPECT_FALSE(guard.corrupted_any()) << rule;
        step(p, *optimizer, nullptr, bad);
        EXPECT_TRUE(guard.corrupted_any()) << rule << " " << bad << " " << lr;
        EXPECT_FALSE(guard.found_any()) << "nobody looked";
        guard.inspect(optimizer->gradients());
        EXPECT_TRUE(guard.found_any()) << rule;
      }
    }
  }
}

// Gradients are finite, what they lead to is not: weights, or a square that the rule remembers.
TEST_F(UpdateGuardTest, NotesAnUpdateThatOverflows) {
  const std::size_t rules = all_rules(parameter()).size();
  for (std::size_t rule = 0; rule < rules; ++rule) {
    Tensor p = parameter();
    const auto optimizer = std::move(all_rules(p)[rule]);
    UpdateGuard guard(device_), look(device_);
    guard.attach(*optimizer);
    step(p, *optimizer, &guard, 0.25F);
    EXPECT_FALSE(guard.corrupted_any()) << rule;
    optimizer->set_lr(3e38);
    for (int i = 0; i < 4; ++i) {
      step(p, *optimizer, &guard, 1e30F);
      std::vector<Tensor> written{p.detach()};
      for (const auto& [name, state] : optimizer->named_state())
        if (is_floating(state.dtype())) written.push_back(state);
      look.inspect(written);
      EXPECT_EQ(guard.corrupted_any(), look.found_any()) << rule << " " << i;
    }
    EXPECT_TRUE(guard.corrupted_any()) << rule;
    EXPECT_FALSE(guard.found_any()) << rule;
  }
}

TEST_F(UpdateGuardTest, NotesItInEveryDtypeAndPlace) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    for (const std::int64_t place : {0, 1, 30, 40}) {
      Tensor p = Tensor::ones({41}, device_).to(dtype);
      p.set_requires_grad(true);
      Sgd optimizer({{"p", p}}, {.lr = 10});
      UpdateGuard guard(device_);
      guard.attach(optimizer);
      p.set_grad(Tensor::ones({41}, device_).to(dtype));
      optimizer.step();
      EXPECT_FALSE(guard.corrupted_any()) << name_of(dtype);
      const double large = dtype == DType::f64 ? 1e308 : 1e38;
      const Tensor gradient = Tensor::ones({41}, device_, DType::f64);
      Tensor(gradient.slice(0, place, place + 1)).fill(large);
      p.set_grad(gradient.to(dtype));
      optimizer.step();
      EXPECT_TRUE(guard.corrupted_any()) << name_of(dtype) << " " << place;
    }
  }
}

TEST_F(UpdateGuardTest, LooksAtEveryDtypeLayoutAndPlace) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    for (const std::int64_t place : {0, 1, 30, 40}) {
      const Tensor tensor = Tensor::ones({41}, device_).to(dtype);
      UpdateGuard guard(device_);
      guard.inspect(std::vector<Tensor>{Tensor(), Tensor::ones({2, 3}, device_), tensor});
      EXPECT_FALSE(guard.found_any());
      tensor.slice(0, place, place + 1).copy_from(Tensor::full({1}, kNan, device_).to(dtype));
      guard.inspect(std::vector<Tensor>{tensor});
      EXPECT_TRUE(guard.found_any()) << name_of(dtype) << " " << place;
    }
  }
  const Tensor wide = Tensor::full({4, 4}, kInfinity, device_);
  Tensor(wide.select(1, 2)).fill(std::numeric_limits<float>::max());
  UpdateGuard guard(device_);
  guard.inspect(std::vector<Tensor>{wide.select(1, 2)});
  EXPECT_FALSE(guard.found_any()) << "beside it";
  guard.inspect(std::vector<Tensor>{wide.select(1, 1)});
  EXPECT_TRUE(guard.found_any());
}

TEST_F(UpdateGuardTest, LooksOnEachDevice) {
  const auto other = make_device("cpu:1");
  UpdateGuard guard(device_);
  guard.inspect(std::vector<Tensor>{Tensor::ones({3}, device_), Tensor::ones({3}, other)});
  EXPECT_FALSE(guard.found_any());
  guard.inspect(std::vector<Tensor>{Tensor::ones({3}, device_), Tensor::full({3}, kNan, other)});
  EXPECT_TRUE(guard.found_any());
}

}  // namespace
}  // namespace dtrain
