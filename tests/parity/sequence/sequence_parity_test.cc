// Recurrent networks learn the adding problem with PyTorch's losses, step for step (make_golden.py).
#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/nn/layers.h"
#include "runtime/nn/recurrent.h"
#include "runtime/optim/clip.h"
#include "runtime/optim/sgd.h"
#include "tests/support/golden.h"

namespace dtrain {
namespace {

constexpr std::int64_t kLength = 12, kBatch = 16, kHidden = 10;
// 30 steps through 12 time steps each: rounding differences of 1e-7 grow a little.
constexpr double kTolerance = 1e-5;

struct Batch {
  Tensor inputs, targets;
};

Batch make_batch(std::uint64_t number, const std::shared_ptr<Device>& device) {
  Generator generator(1000 + number);
  const Tensor values = Tensor::rand({kLength, kBatch}, generator, device);
  std::vector<float> marks(kLength * kBatch);
  for (std::size_t i = 0; i < kBatch; ++i) {
    marks[(i % 6) * kBatch + i] = marks[(6 + 5 * i % 6) * kBatch + i] = 1;
  }
  const Tensor marked = Tensor::from_data(marks, {kLength, kBatch}, device);
  return {stack({values, marked}, -1), sum(values * marked, {0}).unsqueeze(1)};
}

template <class Layers>
void expect_trace(const std::string& name, const RecurrentOptions& options) {
  const test::Golden expected = test::Golden(DTRAIN_GOLDEN)[name];
  const auto device = make_device("cpu");
  Generator generator(0);
  Layers layers(2, kHidden, generator, device, options);
  Linear head(kHidden * (options.bidirectional ? 2 : 1), 1, generator, device);
  NamedTensors parameters = layers.named_parameters();
  for (const auto& named : head.named_parameters()) parameters.push_back(named);
  Sgd optimizer(parameters, {.lr = 0.05, .momentum = 0.9});
  const auto losses = expected["losses"].get<std::vector<double>>();
  ASSERT_EQ(losses.size(), 30U);
  for (std::size_t step = 0; step < losses.size(); ++step) {
    const Batch batch = make_batch(step, device);
    optimizer.zero_grad();
    const Tensor loss = mse_loss(head(layers(batch.inputs).select(0, -1)), batch.targets);
    loss.backward();
    clip_grad_norm(optimizer.gradients(), 1.0);
    optimizer.step();
    EXPECT_NEAR(loss.item(), losses[step], kTolerance) << name << ", step " << step;
  }
  EXPECT_LT(*std::min_element(losses.begin(), losses.end()), 0.5 * losses.front());  // it learns something
  EXPECT_NEAR(sum(layers.named_parameters()[1].second).item(), expected["weight"].get<double>(),
              kTolerance * 10);
}

TEST(SequenceParity, TwoLayersOfLstm) { expect_trace<LSTM>("LSTM", {.layers = 2}); }

TEST(SequenceParity, GruOfBothDirections) { expect_trace<GRU>("GRU", {.bidirectional = true}); }

TEST(SequenceParity, PlainRecurrence) { expect_trace<RNN>("RNN", {}); }

}  // namespace
}  // namespace dtrain
