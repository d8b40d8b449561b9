// Groups, schedules and clipping beside torch.optim and torch.nn.utils (make_golden.py). Each optimizer by
// itself is in the table of operations.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <span>

#include "runtime/optim/adamw.h"
#include "runtime/optim/clip.h"
#include "runtime/optim/lr_schedule.h"
#include "runtime/optim/rules/muon.h"
#include "runtime/optim/sgd.h"
#include "tests/support/golden.h"

namespace dtrain {
namespace {

// Six steps of a few roundings each, on numbers below 2.
constexpr double kTolerance = 1e-6;

std::map<std::string, OptimizerFactory> make_factories() {
  const auto groups = []<class Kind, class Options>(std::in_place_type_t<Kind>, const Options& first,
                                                    const Options& second) {
    return [first, second](const NamedTensors& p) -> std::unique_ptr<Optimizer> {
      return std::make_unique<Kind>(std::vector<ParameterGroup<Options>>{{{p[0]}, first}, {{p[1]}, second}});
    };
  };
  constexpr std::in_place_type_t<Sgd> sgd;
  constexpr std::in_place_type_t<Adam> adam;
  constexpr std::in_place_type_t<AdamW> adamw;
  return {
      {"sgd groups",
       groups(sgd, SgdOptions{.lr = 0.05, .momentum = 0.9, .weight_decay = 0.1}, SgdOptions{.lr = 0.3})},
      {"adamw groups", groups(adamw, AdamWOptions{.lr = 0.01, .weight_decay = 0.1},
                              AdamWOptions{.lr = 0.02, .weight_decay = 0})},
      {"adam groups cosine", groups(adam, AdamOptions{.lr = 0.01}, AdamOptions{.lr = 0.002})},
      {"muon and adamw",
       [](const NamedTensors& p) -> std::unique_ptr<Optimizer> {
         return std::make_unique<Muon>(muon_groups(
             p, {}, names_of_vectors(p), MuonOptions{.lr = 0.02, .scale = MuonScale::match_rms_adamw}));
       }},
  };
}

/// The schedules of make_golden_schedules.py, from `base`.
std::map<std::string, LrSchedule> make_schedules(double base) {
  LrSchedule inverse{.kind = LrKind::inverse_sqrt, .base_lr = base, .warmup_steps = 6};
  LrSchedule factor{.base_lr = base};
  factor.factor = [](const LrPoint& at) { return std::pow(0.9, std::floor(at.step / 4)); };
  return {
      {"linear", {.kind = LrKind::linear, .base_lr = base, .total_steps = 30}},
      {"polynomial", {.kind = LrKind::polynomial, .base_lr = base, .total_steps = 30, .power = 1.5}},
      {"exponential", {.kind = LrKind::exponential, .base_lr = base, .decay_every = 1, .gamma = 0.93}},
      {"step", {.kind = LrKind::step, .base_lr = base, .decay_every = 7, .gamma = 0.3}},
      {"milestones", {.kind = LrKind::step, .base_lr = base, .gamma = 0.2, .decay_at = {5, 12, 30}}},
      {"cosine", {.kind = LrKind::cosine, .base_lr = base, .total_steps = 40, .min_lr = 0.001}},
      {"one-cycle",
       {.kind = LrKind::one_cycle,
        .base_lr = base,
        .warmup_steps = 10,
        .total_steps = 41,
        .min_lr = base / 25 / 1e4,
        .warmup_from = base / 25}},
      {"inverse-sqrt", inverse},
      {"wsd",
       {.kind = LrKind::wsd, .base_lr = base, .warmup_steps = 5, .total_steps = 40, .cooldown_steps = 8}},
      {"plateau", {.kind = LrKind::plateau, .base_lr = base, .gamma = 0.4, .min_lr = 0.0005}},
      {"factor", factor},
  };
}

double ulps_between(double a, double b, double scale) {
  return std::abs(a - b) / (std::nextafter(scale, HUGE_VAL) - scale);
}

class OptimParity : public testing::Test {
 protected:
  NamedTensors draw(std::uint64_t seed) {
    Generator generator(seed);
    Tensor w = Tensor::rand({3, 2}, generator, device_, -1, 1);
    return {{"w", w}, {"b", Tensor::rand({3}, generator, device_, -1, 1)}};
  }
  std::vector<Tensor> draw_grads(std::uint64_t seed) {
    const NamedTensors drawn = draw(seed);
    return {drawn[0].second, drawn[1].second};
  }
  static void expect_near(const std::vector<Tensor>& got, std::span<const double> expected,
                          const std::string& what) {
    std::vector<double> values;
    for (const Tensor& tensor : got) {
      for (const double value : tensor.to_vector<double>()) values.push_back(value);
    }
    ASSERT_EQ(values.size(), expected.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_NEAR(values[i], expected[i], kTolerance) << what << ", element " << i;
    }
  }

  test::Golden golden_{DTRAIN_GOLDEN};
  std::shared_ptr<Device> device_ = make_device("cpu");
};

TEST_F(OptimParity, StepsFollowPyTorch) {
  const auto factories = make_factories();
  ASSERT_EQ(golden_["cases"].size(), factories.size());
  const LrSchedule cosine{.kind = LrKind::cosine, .total_steps = 8, .min_lr = 0.001};
  for (const test::Golden& expected : golden_["cases"].list()) {
    const auto name = expected["optimizer"].get<std::string>();
    NamedTensors parameters = draw(100);
    for (auto& [key, tensor] : parameters) tensor.set_requires_grad(true);
    const auto optimizer = factories.at(name)(parameters);
    const auto after = expected["after"].get<std::vector<double>>();
    ASSERT_EQ(after.size(), golden_["steps"].get<std::size_t>() * 9);
    for (std::size_t step = 0; step * 9 < after.size(); ++step) {
      const auto grads = draw_grads(101 + step);
      for (std::size_t i = 0; i < 2; ++i) parameters[i].second.set_grad(grads[i]);
      if (name.ends_with("cosine")) set_lr(*optimizer, cosine, static_cast<std::int64_t>(step));
      optimizer->step();
      expect_near({parameters[0].second, parameters[1].second}, {&after[step * 9], 9},
                  name + ", step " + std::to_string(step));
    }
  }
}

// transformers warms up from 0 in the first step, we in the step before: from there on the numbers are the
// same.
TEST_F(OptimParity, SchedulesFollowPyTorch) {
  const test::Golden golden(DTRAIN_GOLDEN_SCHEDULES);
  const auto bases = golden["bases"].get<std::vector<double>>();
  std::size_t compared = 0;
  for (std::size_t group = 0; group < bases.size(); ++group) {
    for (auto& [name, schedule] : make_schedules(bases[group])) {
      if (name == "plateau") continue;  // unit_training finds the plateaus
      const auto expected = golden["cases"][name].get<std::vector<double>>();
      ASSERT_EQ(expected.size(), 2 * 40U) << name;
      const bool is_warmed_elsewhere = name == "inverse-sqrt" || name == "wsd";
      // Sums with a cosine near -1 are as exact as the base; PyTorch takes pi * t / T in another order.
      const bool cancels = name == "cosine" || name == "one-cycle";
      for (std::int64_t step = is_warmed_elsewhere ? schedule.warmup_steps : 0; step < 40; ++step) {
        const double rate = expected[group * 40 + static_cast<std::size_t>(step)];
        const double got = schedule.at(static_cast<double>(step));
        EXPECT_LE(ulps_between(got, rate, cancels ? bases[group] : rate), name == "cosine" ? 2 : 1)
            << name << ", step " << step;
        ++compared;
      }
    }
  }
  EXPECT_EQ(compared, 2U * (10 * 40 - 6 - 5));
}

TEST_F(OptimParity, ClippingFollowsPyTorch) {
  ASSERT_EQ(golden_["clip"].size(), 4U);
  for (const test::Golden& expected : golden_["clip"].list()) {
    const std::vector<Tensor> grads = draw_grads(101);
    const bool largest = expected["norm_type"].get<std::string>() == "inf";
    const Tensor norm = clip_grad_norm(grads, expected["max_norm"].get<double>(),
                                       largest ? NormKind::largest : NormKind::euclidean);
    EXPECT_NEAR(norm.item(), expected["norm"].get<double>(), kTolerance);
    expect_near(grads, expected["grads"].get<std::vector<double>>(), expected.dump());
  }
  const std::vector<Tensor> grads = draw_grads(101);
  clip_grad_value(grads, golden_["clip_value"]["limit"].get<double>());
  expect_near(grads, golden_["clip_value"]["grads"].get<std::vector<double>>(), "clip_grad_value");
}

}  // namespace
}  // namespace dtrain
