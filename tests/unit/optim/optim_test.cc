// Options, state that continues exactly, parameters without gradients, schedules.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "runtime/base/error.h"
#include "runtime/optim/adamw.h"
#include "runtime/optim/lr_schedule.h"
#include "runtime/optim/sgd.h"

namespace dtrain {
namespace {

using Named = Optimizer::NamedTensors;

class OptimizerTest : public testing::Test {
 protected:
  Tensor parameter(float value) {
    Tensor tensor = Tensor::full({3}, value, device_);
    tensor.set_requires_grad(true);
    return tensor;
  }
  void set_grads(const Named& parameters, double value) {
    for (auto [name, tensor] : parameters) tensor.set_grad(Tensor::full({3}, value, device_));
  }

  std::shared_ptr<Device> device_ = make_device("cpu");
};

Named copy_of(const Named& state) {
  Named copy;
  for (const auto& [name, tensor] : state) copy.emplace_back(name, tensor.detach().clone());
  return copy;
}

template <class Make>
void expect_exact_continuation(const Named& a, const Named& b, Make make,
                               const std::function<void(const Named&, double)>& set_grads) {
  const auto first = make(a), second = make(b);
  for (int step = 0; step < 3; ++step) {
    set_grads(a, 0.3 * step + 0.1);
    first->step();
  }
  for (std::size_t i = 0; i < a.size(); ++i) {  // the restart: weights and state are all there is
    b[i].second.detach().copy_from(a[i].second.detach());
  }
  second->load_state(copy_of(first->named_state()));
  for (int step = 0; step < 3; ++step) {
    set_grads(a, -0.2 * step);
    set_grads(b, -0.2 * step);
    first->step();
    second->step();
  }
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].second.to_vector<float>(), b[i].second.to_vector<float>());
  }
}

TEST_F(OptimizerTest, StateContinuesExactly) {
  const auto grads = [this](const Named& parameters, double value) { set_grads(parameters, value); };
  const Named a{{"p", parameter(1)}, {"q", parameter(2)}}, b{{"p", parameter(0)}, {"q", parameter(0)}};
  SgdOptions sgd;
  sgd.lr = 0.1;
  sgd.momentum = 0.9;
  sgd.dampening = 0.1;
  expect_exact_continuation(
      a, b, [&sgd](const Named& p) { return std::make_unique<Sgd>(p, sgd); }, grads);
  expect_exact_continuation(
      a, b, [](const Named& p) { return std::make_unique<AdamW>(p, AdamWOptions{}); }, grads);
}

TEST_F(OptimizerTest, NamesItsState) {
  const Named parameters{{"fc.weight", parameter(1)}};
  AdamW adamw(parameters, {});
  EXPECT_TRUE(adamw.named_state().empty());
  set_grads(parameters, 1);
  adamw.step();
  adamw.step();
  const Named state = adamw.named_state();
  ASSERT_EQ(state.size(), 3U);
  EXPECT_EQ(state[0].first, "fc.weight.exp_avg");
  EXPECT_EQ(state[1].first, "fc.weight.exp_avg_sq");
  EXPECT_EQ(state[2].first, "fc.weight.step");
  EXPECT_EQ(state[2].second.item(), 2);
  SgdOptions momentum;
  momentum.momentum = 0.5;
  Sgd sgd(parameters, momentum);
  sgd.step();
  ASSERT_EQ(sgd.named_state().size(), 1U);
  EXPECT_EQ(sgd.named_state()[0].first, "fc.weight.momentum_buffer");
}

TEST_F(OptimizerTest, RefusesStateThatIsNotItsOwn) {
  const Named parameters{{"p", parameter(1)}};
  AdamW adamw(parameters, {});
  EXPECT_THROW(adamw.load_state({{"q.exp_avg", Tensor::zeros({3}, device_)}}), UsageError);
  EXPECT_THROW(adamw.load_state({{"p.exp_avg", Tensor::zeros({2}, device_)}}), UsageError);
  EXPECT_THROW(adamw.load_state({{"p.exp_avg", Tensor::zeros({3}, device_)}}), UsageError);
  Sgd plain(parameters, {});
  EXPECT_THROW(plain.load_state({{"p.momentum_buffer", Tensor::zeros({3}, device_)}}), UsageError);
}

TEST_F(OptimizerTest, LeavesParametersWithoutGradientAlone) {
  const Tensor used = parameter(1);
  Tensor late = parameter(1);
  SgdOptions options;
  options.lr = 1;
  options.momentum = 0.5;
  options.dampening = 0.5;
  options.weight_decay = 0.5;
  Sgd sgd({{"used", used}, {"late", late}}, options);
  set_grads({{"used", used}}, 1);
  sgd.step();
  EXPECT_EQ(late.to_vector<float>()[0], 1);
  EXPECT_EQ(used.to_vector<float>()[0], -0.5F);  // g = 1 + 0.5·1, buf = g
  late.set_grad(Tensor::ones({3}, device_));
  sgd.step();  // late's first step (no dampening), used's second: buf = 0.5·1.5 + 0.5·(1 - 0.25) = 1.125
  EXPECT_EQ(late.to_vector<float>()[0], -0.5F);
  EXPECT_EQ(used.to_vector<float>()[0], -1.625F);
  sgd.zero_grad();
  EXPECT_FALSE(late.grad().defined());
}

TEST_F(OptimizerTest, LateParametersCountTheirOwnSteps) {
  const Tensor early = parameter(0);
  Tensor late = parameter(0);
  AdamWOptions options;
  options.lr = 0.1;
  AdamW adamw({{"early", early}, {"late", late}}, options);
  set_grads({{"early", early}}, 1);
  adamw.step();
  late.set_grad(Tensor::ones({3}, device_));
  adamw.step();
  EXPECT_NEAR(late.to_vector<float>()[0], -0.1, 1e-6);  // the first step has size lr
}

TEST_F(OptimizerTest, StepMarksParametersModified) {
  Tensor p = parameter(1);
  const std::uint64_t before = p.version();
  p.set_grad(Tensor::ones({3}, device_));
  Sgd({{"p", p}}, {}).step();
  EXPECT_GT(p.version(), before);
}

TEST_F(OptimizerTest, RefusesImpossibleOptions) {
  const Named parameters{{"p", parameter(1)}};
  SgdOptions sgd;
  sgd.nesterov = true;
  EXPECT_THROW(Sgd(parameters, sgd), UsageError);
  sgd = {};
  sgd.lr = -1;
  EXPECT_THROW(Sgd(parameters, sgd), UsageError);
  sgd = {};
  sgd.momentum = std::nan("");
  EXPECT_THROW(Sgd(parameters, sgd), UsageError);
  AdamWOptions adamw;
  adamw.beta1 = 1;
  EXPECT_THROW(AdamW(parameters, adamw), UsageError);
  EXPECT_THROW(Sgd({}, {}), UsageError);
  EXPECT_THROW(Sgd({{"p", parameter(1)}, {"p", parameter(1)}}, {}), UsageError);
  EXPECT_THROW(Sgd({{"p", parameter(4).slice(0, 0, 4, 2)}}, {}), UsageError);
}

TEST(LrSchedule, WarmsUpLinearly) {
  const LrSchedule schedule{LrKind::constant, 0.8, 4};
  EXPECT_DOUBLE_EQ(schedule.at(0), 0.2);
  EXPECT_DOUBLE_EQ(schedule.at(3), 0.8);
  EXPECT_DOUBLE_EQ(schedule.at(1000), 0.8);
}

TEST(LrSchedule, DecaysInSteps) {
  LrSchedule schedule{LrKind::step, 1.0};
  schedule.decay_every = 10;
  schedule.gamma = 0.5;
  EXPECT_DOUBLE_EQ(schedule.at(9), 1.0);
  EXPECT_DOUBLE_EQ(schedule.at(10), 0.5);
  EXPECT_DOUBLE_EQ(schedule.at(39), 0.125);
}

TEST(LrSchedule, FollowsACosine) {
  LrSchedule schedule{LrKind::cosine, 1.0, 10, 110};
  schedule.min_lr = 0.1;
  EXPECT_DOUBLE_EQ(schedule.at(9), 1.0);
  EXPECT_DOUBLE_EQ(schedule.at(10), 1.0);
  EXPECT_DOUBLE_EQ(schedule.at(60), 0.55);
  EXPECT_DOUBLE_EQ(schedule.at(110), 0.1);
  EXPECT_DOUBLE_EQ(schedule.at(1000), 0.1);
  schedule = {LrKind::cosine, 1.0, 10, 5};  // a run shorter than its warm-up
  EXPECT_DOUBLE_EQ(schedule.at(4), 0.5);
}

TEST(LrSchedule, DecaysAfterGivenSteps) {
  LrSchedule schedule{LrKind::step, 1.0, 4};
  schedule.decay_at = {6, 9};
  EXPECT_DOUBLE_EQ(schedule.at(5), 1.0) << "the warm-up's steps count";
  EXPECT_DOUBLE_EQ(schedule.at(6), 0.1);
  EXPECT_DOUBLE_EQ(schedule.at(8.5), 0.1);
  EXPECT_NEAR(schedule.at(9), 0.01, 1e-15);
}

// LARS's schedule (You et al. 2017).
TEST(LrSchedule, FollowsAPolynomial) {
  LrSchedule schedule{LrKind::polynomial, 1.0, 10, 110};
  schedule.min_lr = 0.2;
  EXPECT_DOUBLE_EQ(schedule.at(10), 1.0);
  EXPECT_DOUBLE_EQ(schedule.at(60), 0.2 + 0.8 * 0.25);
  EXPECT_DOUBLE_EQ(schedule.at(110), 0.2);
  schedule.power = 1;
  EXPECT_DOUBLE_EQ(schedule.at(60), 0.6);
}

TEST(LrSchedule, WarmsUpFromAnotherRate) {
  LrSchedule schedule{LrKind::constant, 3.2, 4};
  schedule.warmup_from = 0.1;
  EXPECT_DOUBLE_EQ(schedule.at(0), 0.1 + 3.1 / 4);
  EXPECT_DOUBLE_EQ(schedule.at(3), 3.2);
}

// Steps that are twice as large, or half as large, are on the same curve.
TEST(LrSchedule, GoesByFractionsOfSteps) {
  LrSchedule schedule{LrKind::cosine, 1.0, 4, 12};
  EXPECT_DOUBLE_EQ(schedule.at(0.5), 0.375);
  EXPECT_DOUBLE_EQ(schedule.at(3.5), 1.0) << "not above the base";
  EXPECT_LT(schedule.at(6.5), schedule.at(6));
  EXPECT_GT(schedule.at(6.5), schedule.at(7));
  schedule = {LrKind::step, 1.0};
  schedule.decay_every = 2;
  EXPECT_DOUBLE_EQ(schedule.at(1.999), 1.0);
  EXPECT_DOUBLE_EQ(schedule.at(2.001), 0.1);
}

TEST(LrSchedule, RisesAndFallsInOneCycle) {
  LrSchedule schedule{LrKind::one_cycle, 1.0, 5, 21};
  schedule.warmup_from = 0.2;
  schedule.min_lr = 0.1;
  EXPECT_DOUBLE_EQ(schedule.at(0), 0.2);
  EXPECT_DOUBLE_EQ(schedule.at(2), 0.6);
  EXPECT_DOUBLE_EQ(schedule.at(4), 1.0);
  EXPECT_DOUBLE_EQ(schedule.at(12), 0.55);
  EXPECT_DOUBLE_EQ(schedule.at(20), 0.1);
  EXPECT_DOUBLE_EQ(schedule.at(100), 0.1);
}

TEST(LrSchedule, FallsOnlyInItsCooldown) {
  LrSchedule schedule{LrKind::wsd, 1.0, 4, 20};
  schedule.cooldown_steps = 5;
  schedule.min_lr = 0.5;
  EXPECT_DOUBLE_EQ(schedule.at(0), 0.25);
  EXPECT_DOUBLE_EQ(schedule.at(15), 1.0);
  EXPECT_DOUBLE_EQ(schedule.at(16), 0.9);
  EXPECT_DOUBLE_EQ(schedule.at(20), 0.5);
}

TEST(LrSchedule, IsMultipliedByAFactorOfEpochs) {
  LrSchedule schedule{LrKind::cosine, 1.0, 0, 20};
  const double plain = schedule.at(10);
  schedule.steps_per_epoch = 4;
  schedule.factor = [](const LrPoint& at) { return at.epoch == 2.5 && at.total_steps == 20 ? 0.5 : 1; };
  EXPECT_DOUBLE_EQ(schedule.at(10), 0.5 * plain);
}

TEST(LrSchedule, RefusesNonsense) {
  EXPECT_EQ(parse_lr_kind("cosine"), LrKind::cosine);
  EXPECT_EQ(parse_lr_kind("plateau"), LrKind::plateau);
  EXPECT_EQ(parse_lr_kind("one-cycle"), LrKind::one_cycle);
  for (const char* bad : {"", "cosin", "plateau, ", "one_cycle"})
    EXPECT_THROW(parse_lr_kind(bad), UsageError) << bad;
  LrSchedule bad;
  bad.factor = [](const LrPoint& at) { return 1 - at.step; };
  EXPECT_NO_THROW(bad.at(1));
  EXPECT_THROW(bad.at(2), UsageError);
  EXPECT_THROW(LrSchedule{LrKind::step}.at(0), UsageError);
  EXPECT_THROW(LrSchedule{LrKind::cosine}.at(0), UsageError);
  EXPECT_THROW(LrSchedule{LrKind::polynomial}.at(0), UsageError);
  EXPECT_THROW((LrSchedule{LrKind::constant, -1.0}.at(0)), UsageError);
  EXPECT_THROW(LrSchedule{}.at(-1), UsageError);
}

}  // namespace
}  // namespace dtrain
