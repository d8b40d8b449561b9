// Parameter groups: each moves as an optimizer of its own would, in one kernel call, also when the step is
// recorded; state goes by name.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "runtime/base/error.h"
#include "runtime/base/spans.h"
#include "runtime/device/timed_device.h"
#include "runtime/optim/adamw.h"
#include "runtime/optim/lr_schedule.h"
#include "runtime/optim/sgd.h"
#include "tests/support/tape_device.h"

namespace dtrain {
namespace {

using Sgds = std::vector<ParameterGroup<SgdOptions>>;
using AdamWs = std::vector<ParameterGroup<AdamWOptions>>;

const SgdOptions kPlain{.lr = 0.1, .weight_decay = 0.5};
const SgdOptions kMomentum{.lr = 0.02, .momentum = 0.9, .nesterov = true};
const AdamWOptions kQuick{.lr = 0.1, .weight_decay = 0.3}, kSlow{.lr = 0.001, .beta1 = 0.5};

/// A matrix and two vectors, the same each time.
NamedTensors make_parameters(const std::shared_ptr<Device>& device) {
  Generator generator(5);
  NamedTensors parameters{{"fc.weight", Tensor::rand({3, 2}, generator, device)},
                          {"fc.bias", Tensor::rand({3}, generator, device)},
                          {"norm.weight", Tensor::rand({2}, generator, device)}};
  for (auto& [name, tensor] : parameters) tensor.set_requires_grad(true);
  return parameters;
}

void set_grads(NamedTensors& parameters, int step) {
  for (auto& [name, tensor] : parameters) {
    tensor.set_grad(Tensor::full(tensor.shape(), 0.25 * step - 0.4, tensor.shared_device(), tensor.dtype()));
  }
}

std::vector<float> values_of(const NamedTensors& parameters) {
  std::vector<float> values;
  for (const auto& [name, tensor] : parameters) {
    for (const float value : tensor.to_vector<float>()) values.push_back(value);
  }
  return values;
}

NamedTensors part(const NamedTensors& all, std::size_t begin, std::size_t end) {
  return {all.begin() + static_cast<std::ptrdiff_t>(begin), all.begin() + static_cast<std::ptrdiff_t>(end)};
}

class ParameterGroupTest : public testing::Test {
 protected:
  std::shared_ptr<Device> device_ = make_device("cpu");
};

template <class Kind, class Options>
void expect_groups_are_optimizers_of_their_own(const std::shared_ptr<Device>& device, const Options& first,
                                               const Options& second) {
  NamedTensors together = make_parameters(device), apart = make_parameters(device);
  Kind both({{part(together, 0, 1), first}, {part(together, 1, 3), second}});
  Kind one(part(apart, 0, 1), first), other(part(apart, 1, 3), second);
  for (int step = 0; step < 4; ++step) {
    set_grads(together, step);
    set_grads(apart, step);
    both.step();
    one.step();
    other.step();
  }
  EXPECT_EQ(values_of(together), values_of(apart));
  EXPECT_NE(values_of(together), values_of(make_parameters(device)));
}

TEST_F(ParameterGroupTest, EachMovesAsAnOptimizerOfItsOwn) {
  expect_groups_are_optimizers_of_their_own<Sgd>(device_, kPlain, kMomentum);
  expect_groups_are_optimizers_of_their_own<AdamW>(device_, kQuick, kSlow);
}

TEST_F(ParameterGroupTest, OneKernelCallAGroup) {
  SpanRecorder spans;
  NamedTensors parameters = make_parameters(make_timed_device(device_, spans));
  AdamW optimizer(AdamWs{{part(parameters, 0, 1), kQuick}, {part(parameters, 1, 3), kSlow}});
  set_grads(parameters, 1);
  optimizer.step();
  spans.take();
  optimizer.step();
  const auto recorded = spans.take();
  EXPECT_EQ(std::count_if(recorded.begin(), recorded.end(), [](const auto& s) { return s.name == "adamw"; }),
            2);
}

TEST_F(ParameterGroupTest, ScheduleStartsFromEachBaseRate) {
  const NamedTensors parameters = make_parameters(device_);
  Sgd optimizer(Sgds{{part(parameters, 0, 1), {.lr = 1.0}}, {part(parameters, 1, 3), {.lr = 0.3}}});
  LrSchedule schedule{LrKind::cosine, 7.0, 10, 110};
  schedule.min_lr = 0.1;
  set_lr(optimizer, schedule, 4);
  EXPECT_DOUBLE_EQ(optimizer.lr(0), 0.5);
  EXPECT_DOUBLE_EQ(optimizer.lr(1), 0.15);
  set_lr(optimizer, schedule, 60);
  EXPECT_DOUBLE_EQ(optimizer.lr(0), 0.55);
  EXPECT_DOUBLE_EQ(optimizer.lr(1), 0.2);
  EXPECT_DOUBLE_EQ(optimizer.base_lr(1), 0.3);
  optimizer.set_lr(0.4);
  EXPECT_DOUBLE_EQ(optimizer.lr(1), 0.4);
}

TEST_F(ParameterGroupTest, StateFitsOtherGroups) {
  NamedTensors parameters = make_parameters(device_);
  AdamW grouped(AdamWs{{part(parameters, 0, 1), kQuick}, {part(parameters, 1, 3), kSlow}});
  set_grads(parameters, 1);
  grouped.step();
  const NamedTensors state = grouped.named_state();
  ASSERT_EQ(state.size(), 9U);
  AdamW whole(parameters, kQuick);
  whole.load_state(state);
  EXPECT_EQ(values_of(whole.named_state()), values_of(state));
  // Without momentum in a group there is nowhere to put its buffers.
  Sgd with(parameters, kMomentum),
      partly(Sgds{{part(parameters, 0, 2), kMomentum}, {part(parameters, 2, 3), kPlain}});
  with.step();
  EXPECT_THROW(partly.load_state(with.named_state()), UsageError);
  partly.load_state(part(with.named_state(), 0, 2));
  EXPECT_EQ(partly.named_state().size(), 2U);
}

/// Steps under a schedule, as they come or recorded once and replayed.
std::vector<float> train(const std::shared_ptr<Device>& device, bool recorded,
                         const std::function<std::unique_ptr<Optimizer>(const NamedTensors&)>& make) {
  const LrSchedule schedule{LrKind::cosine, 1.0, 2, 8};
  NamedTensors parameters = make_parameters(device);
  const auto optimizer = make(parameters);
  std::unique_ptr<Graph> graph;
  for (int step = 0; step < 8; ++step) {
    set_lr(*optimizer, schedule, step);
    if (step == 0) set_grads(parameters, 2);  // what a graph reads stays where it is
    if (!recorded || step < 2) {
      optimizer->step();
      continue;
    }
    if (graph) {
      optimizer->count_replay();
    } else {
      optimizer->begin_recording();
      graph = device->record([&] { optimizer->step(); });
      optimizer->end_recording();
    }
    optimizer->prepare_replay();
    graph->launch(device->compute_stream());
  }
  return values_of(parameters);
}

TEST_F(ParameterGroupTest, ARecordedStepTakesEachGroupsRate) {
  const auto tape = std::make_shared<test::TapeDevice>();
  const auto sgd = [](const NamedTensors& p) {
    return std::make_unique<Sgd>(Sgds{{part(p, 0, 1), kPlain}, {part(p, 1, 3), kMomentum}});
  };
  const auto adamw = [](const NamedTensors& p) {
    return std::make_unique<AdamW>(AdamWs{{part(p, 0, 1), kQuick}, {part(p, 1, 3), kSlow}});
  };
  EXPECT_EQ(train(tape, true, sgd), train(device_, false, sgd));
  EXPECT_EQ(train(tape, true, adamw), train(device_, false, adamw));
  EXPECT_EQ(tape->graphs, 2);
}

TEST_F(ParameterGroupTest, DecayLeavesOutVectorsByName) {
  const NamedTensors whole = make_parameters(device_);
  const auto names = names_of_vectors(whole);
  EXPECT_EQ(names, (std::set<std::string>{"fc.bias", "norm.weight"}));
  const OptimizerFactory factory = [&names](const NamedTensors& parameters) {
    return std::make_unique<AdamW>(decay_groups(parameters, names, AdamWOptions{.weight_decay = 0.1}));
  };
  EXPECT_EQ(factory(whole)->group_count(), 2U);

  // What a rank holds of a matrix may be a vector, and it may hold nothing else.
  Tensor flat = whole[0].second.detach().flatten();
  flat.set_requires_grad(true);
  EXPECT_EQ(factory({{"fc.weight", flat}})->group_count(), 1U);
  const auto groups = decay_groups({{"fc.weight", flat}, whole[1]}, names, AdamWOptions{.weight_decay = 0.1});
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_EQ(groups[0].parameters[0].first, "fc.weight");
  EXPECT_EQ(groups[0].options.weight_decay, 0.1);
  EXPECT_EQ(groups[1].parameters[0].first, "fc.bias");
  EXPECT_EQ(groups[1].options.weight_decay, 0);
}

TEST_F(ParameterGroupTest, RefusesGroupsThatMakeNoSense) {
  const NamedTensors all = make_parameters(device_);
  EXPECT_THROW(Sgd(Sgds{}), UsageError);
  EXPECT_THROW(Sgd(Sgds{{all, kPlain}, {{}, kPlain}}), UsageError);
  EXPECT_THROW(Sgd(Sgds{{all, kPlain}, {part(all, 0, 1), kPlain}}), UsageError);
  EXPECT_THROW(Sgd(Sgds{{part(all, 0, 1), kPlain}, {part(all, 1, 3), {.lr = -1}}}), UsageError);
  EXPECT_THROW(AdamW(AdamWs{{part(all, 0, 1), kQuick}, {part(all, 1, 3), {.beta1 = 1}}}), UsageError);
  Sgd optimizer(all, kPlain);
  EXPECT_THROW(optimizer.set_lr(1, 0.1), UsageError);
  EXPECT_THROW(static_cast<void>(optimizer.lr(1)), UsageError);
}

}  // namespace
}  // namespace dtrain
