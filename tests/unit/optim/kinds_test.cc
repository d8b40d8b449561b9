// Adam, RMSprop, Adagrad and Lion: state that continues exactly, skipped and recorded steps, options out of
// range.
#include <gtest/gtest.h>

#include <limits>

#include "runtime/base/error.h"
#include "runtime/optim/adagrad.h"
#include "runtime/optim/adam.h"
#include "runtime/optim/guard/grad_scaler.h"
#include "runtime/optim/rmsprop.h"
#include "runtime/optim/rules/lion.h"
#include "tests/support/tape_device.h"

namespace dtrain {
namespace {

struct Kind {
  std::string name;
  OptimizerFactory make;
  std::vector<std::string> state;
};

void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

std::vector<Kind> kinds() {
  return {
      {"adam",
       [](const NamedTensors& p) {
         return std::make_unique<Adam>(p, AdamOptions{.lr = 0.1, .weight_decay = 0.1});
       },
       {"p.exp_avg", "p.exp_avg_sq", "p.step"}},
      {"rmsprop",
       [](const NamedTensors& p) { return std::make_unique<RmsProp>(p, RmsPropOptions{}); },
       {"p.square_avg"}},
      {"rmsprop_all",
       [](const NamedTensors& p) {
         return std::make_unique<RmsProp>(p, RmsPropOptions{.momentum = 0.9, .centered = true});
       },
       {"p.square_avg", "p.momentum_buffer", "p.grad_avg"}},
      {"adagrad",
       [](const NamedTensors& p) {
         return std::make_unique<Adagrad>(p, AdagradOptions{.lr_decay = 0.3, .initial_accumulator_value = 1});
       },
       {"p.sum", "p.step"}},
      {"lion",
       [](const NamedTensors& p) {
         return std::make_unique<Lion>(p, LionOptions{.lr = 0.1, .weight_decay = 0.1});
       },
       {"p.exp_avg", "p.step"}},
  };
}

class OptimizerKind : public testing::TestWithParam<Kind> {
 protected:
  Tensor parameter(const std::shared_ptr<Device>& device) {
    Tensor tensor = Tensor::from_data({1.0F, -2.0F}, {2}, device);
    tensor.set_requires_grad(true);
    return tensor;
  }
  static void step(Optimizer& optimizer, Tensor& tensor, double gradient) {
    tensor.set_grad(Tensor::full({2}, gradient, tensor.shared_device()));
    optimizer.step();
  }
  std::shared_ptr<Device> device_ = make_device("cpu");
};

TEST_P(OptimizerKind, StateContinuesExactly) {
  Tensor first = parameter(device_), second = parameter(device_);
  const auto one = GetParam().make({{"p", first}}), other = GetParam().make({{"p", second}});
  EXPECT_TRUE(one->named_state().empty());
  for (const double gradient : {0.1, -0.4, 0.3}) step(*one, first, gradient);
  second.detach().copy_from(first.detach());
  std::vector<std::string> names;
  NamedTensors saved;
  for (const auto& [name, tensor] : one->named_state()) {
    names.push_back(name);
    saved.emplace_back(name, tensor.clone());
  }
  EXPECT_EQ(names, GetParam().state);
  other->load_state(saved);
  for (const double gradient : {0.2, -0.1}) {
    step(*one, first, gradient);
    step(*other, second, gradient);
  }
  EXPECT_EQ(first.to_vector<float>(), second.to_vector<float>());
  if (saved.size() > 1) {
    saved.pop_back();
    EXPECT_THROW(other->load_state(saved), UsageError);
  }
  EXPECT_THROW(other->load_state({{"p.unknown", first}}), UsageError);
}

TEST_P(OptimizerKind, SkippedStepsLeaveNoTrace) {
  const auto run = [&](bool with_overflows) {
    Tensor tensor = parameter(device_);
    const auto optimizer = GetParam().make({{"p", tensor}});
    GradScaler scaler(device_, {.initial_scale = 1, .growth_interval = 100});
    scaler.attach(*optimizer);
    const auto apply = [&](double gradient) {
      tensor.set_grad(Tensor::full({2}, gradient * scaler.scale(), device_));
      scaler.unscale(optimizer->gradients());
      optimizer->step();
      scaler.update();
    };
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    if (with_overflows) apply(kInfinity);
    apply(0.5);
    if (with_overflows) apply(-kInfinity);
    apply(-1);
    std::vector<float> result = tensor.to_vector<float>();
    for (const auto& [name, state] : optimizer->named_state()) {
      for (const float value : state.to_vector<float>()) result.push_back(value);
    }
    return result;
  };
  EXPECT_EQ(run(true), run(false));
}

TEST_P(OptimizerKind, ARecordedStepIsTheStep) {
  const auto tape = std::make_shared<test::TapeDevice>();
  Tensor plain = parameter(device_), recorded = parameter(tape);
  const auto one = GetParam().make({{"p", plain}}), other = GetParam().make({{"p", recorded}});
  step(*one, plain, 0.3);
  step(*other, recorded, 0.3);
  std::unique_ptr<Graph> graph;
  for (int i = 0; i < 3; ++i) {
    for (const auto& optimizer : {one.get(), other.get()}) optimizer->set_lr(0.1 / (i + 1));
    one->step();
    if (graph) {
      other->count_replay();
    } else {
      other->begin_recording();
      graph = tape->record([&] { other->step(); });
      other->end_recording();
    }
    other->prepare_replay();
    graph->launch(tape->compute_stream());
  }
  EXPECT_EQ(plain.to_vector<float>(), recorded.to_vector<float>());
}

TEST_P(OptimizerKind, WorksInEveryFloatingDtype) {
  for (const DType dtype : {DType::f64, DType::bf16}) {
    Tensor tensor = parameter(device_).detach().to(dtype);
    tensor.set_requires_grad(true);
    const auto optimizer = GetParam().make({{"p", tensor}});
    tensor.set_grad(Tensor::ones({2}, device_, dtype));
    optimizer->step();
    EXPECT_LT(tensor.to_vector<double>()[0], 1);
  }
}

INSTANTIATE_TEST_SUITE_P(, OptimizerKind, testing::ValuesIn(kinds()),
                         [](const auto& kind) { return kind.param.name; });

TEST(OptimizerKinds, RefuseImpossibleOptions) {
  Tensor tensor = Tensor::ones({2}, make_device("cpu"));
  tensor.set_requires_grad(true);
  const NamedTensors p{{"p", tensor}};
  EXPECT_THROW(Adam(p, AdamOptions{.beta2 = 1}), UsageError);
  EXPECT_THROW(Adam(p, AdamOptions{.eps = -1}), UsageError);
  EXPECT_THROW(RmsProp(p, RmsPropOptions{.alpha = 1}), UsageError);
  EXPECT_THROW(RmsProp(p, RmsPropOptions{.momentum = -1}), UsageError);
  EXPECT_THROW(Adagrad(p, AdagradOptions{.lr_decay = -1}), UsageError);
  EXPECT_THROW(Lion(p, LionOptions{.beta1 = 1}), UsageError);
  EXPECT_THROW(Lion(p, LionOptions{.weight_decay = -1}), UsageError);
  EXPECT_THROW(Adagrad(p, AdagradOptions{.initial_accumulator_value = -1}), UsageError);
}

}  // namespace
}  // namespace dtrain
