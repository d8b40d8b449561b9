// Muon: what its iteration makes of singular values, state that continues exactly, groups, what is refused.
// Its numbers beside PyTorch's are cases of the table of operations.
#include "runtime/optim/rules/muon.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "runtime/autograd/ops.h"
#include "runtime/base/error.h"
#include "runtime/optim/guard/grad_scaler.h"
#include "tests/support/message_of.h"

namespace dtrain {
namespace {

using testing::HasSubstr;

class MuonTest : public testing::Test {
 protected:
  Tensor parameter(const Dims& shape, std::uint64_t seed) {
    Generator generator(seed);
    Tensor tensor = Tensor::randn(shape, generator, device_);
    tensor.set_requires_grad(true);
    return tensor;
  }
  NamedTensors network() { return {{"w", parameter({4, 6}, 1)}, {"b", parameter({4}, 2)}}; }
  static std::unique_ptr<Muon> make(const NamedTensors& parameters) {
    return std::make_unique<Muon>(
        layerwise_groups(parameters, names_of_vectors(parameters), MuonOptions{.lr = 0.02}));
  }
  void step(Optimizer& optimizer, const NamedTensors& parameters, std::uint64_t seed) {
    for (const auto& [name, tensor] : parameters) {
      Generator generator(seed++);
      Tensor(tensor).set_grad(Tensor::randn(tensor.shape(), generator, device_));
    }
    optimizer.step();
  }
  std::shared_ptr<Device> device_ = make_device("cpu");
};

// Of a matrix with singular values 1 and 0.01, both become about 1.
TEST_F(MuonTest, BringsSingularValuesNearOne) {
  const Tensor x = Tensor::from_data({0.6, -0.008, 0.8, 0.006, 0.0, 0.0}, {3, 2}, device_);
  for (const Tensor& matrix : {x, x.transpose(0, 1)}) {
    const Tensor y = orthogonalized(matrix, MuonOptions{}.coefficients, 5, 1e-7);
    ASSERT_EQ(y.shape(), matrix.shape());
    const Tensor tall = matrix.size(0) > 2 ? y : y.transpose(0, 1);
    const auto squares = sum(square(tall), {0}).to_vector<double>();
    for (const double value : squares) {
      EXPECT_GT(value, 0.25);
      EXPECT_LT(value, 1.7);
    }
    EXPECT_NEAR(sum(mul(tall.select(1, 0), tall.select(1, 1))).item(), 0, 1e-9);  // and stay orthogonal
  }
}

TEST_F(MuonTest, StateContinuesExactlyAndVectorsHaveTwoMoments) {
  const NamedTensors first = network(), second = network();
  const auto one = make(first), other = make(second);
  for (std::uint64_t seed : {10, 20, 30}) step(*one, first, seed);
  NamedTensors saved;
  std::vector<std::string> names;
  for (const auto& [name, tensor] : one->named_state()) {
    names.push_back(name);
    saved.emplace_back(name, tensor.clone());
  }
  EXPECT_THAT(names,
              testing::UnorderedElementsAre("w.exp_avg", "w.step", "b.exp_avg", "b.exp_avg_sq", "b.step"));
  for (std::size_t i = 0; i < first.size(); ++i)
    second[i].second.detach().copy_from(first[i].second.detach());
  other->load_state(saved);
  step(*one, first, 40);
  step(*other, second, 40);
  for (std::size_t i = 0; i < first.size(); ++i)
    EXPECT_EQ(first[i].second.to_vector<float>(), second[i].second.to_vector<float>());
  saved.emplace_back("w.exp_avg_sq", Tensor::zeros({4, 6}, device_));
  EXPECT_THROW(other->load_state(saved), UsageError);  // a matrix has none
}

TEST_F(MuonTest, SkippedStepsLeaveNoTrace) {
  const auto run = [this](bool with_overflow) {
    const NamedTensors parameters = network();
    const auto optimizer = make(parameters);
    GradScaler scaler(device_, {.initial_scale = 1, .growth_interval = 100});
    scaler.attach(*optimizer);
    const auto apply = [&](double factor) {
      for (const auto& [name, tensor] : parameters) {
        Generator generator(5);
        Tensor(tensor).set_grad(
            mul(Tensor::randn(tensor.shape(), generator, device_), factor * scaler.scale()));
      }
      scaler.unscale(optimizer->gradients());
      optimizer->step();
      scaler.update();
    };
    if (with_overflow) apply(std::numeric_limits<double>::infinity());
    apply(1);
    if (with_overflow) apply(std::numeric_limits<double>::infinity());
    apply(-0.5);
    std::vector<float> values;
    for (const auto& [name, tensor] : parameters) {
      for (const float value : tensor.to_vector<float>()) values.push_back(value);
    }
    return values;
  };
  EXPECT_EQ(run(true), run(false));
}

TEST_F(MuonTest, RefusesVectorsAndOptionsOutOfRange) {
  EXPECT_THAT(
      test::message_of([&] {
        Muon({{"b", parameter({4}, 1)}}, {});
      }),
      HasSubstr("at least two dimensions, got \"b\", float32 [4]; put it into a group with adapts = false"));
  const NamedTensors w = {{"w", parameter({2, 2}, 1)}};
  EXPECT_THROW(Muon(w, {.momentum = 1}), UsageError);
  EXPECT_THROW(Muon(w, {.iterations = -1}), UsageError);
  EXPECT_THROW(Muon(w, {.eps = 0}), UsageError);
}

}  // namespace
}  // namespace dtrain
