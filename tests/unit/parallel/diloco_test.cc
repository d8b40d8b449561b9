// DiLoCo, with ranks as threads: the weights that torch's own AdamW and Nesterov SGD come to by Algorithm 1
// of Douillard et al. 2023, for groups of one rank and of several.
#include "parallel/sync/sharded/diloco_sync.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "collectives/thread_ranks.h"
#include "parallel/forms.h"
#include "parallel/mesh.h"
#include "runtime/nn/layers.h"
#include "runtime/optim/adamw.h"
#include "tests/support/message_of.h"

namespace dtrain {
namespace {

using testing::FloatNear;
using testing::HasSubstr;
using testing::Pointwise;

const Deadline kNever = Deadline::never();
constexpr int kRows = 5;

/// y = w · x + b from w = 0.1, 0.2, 0.3, 0.4 and b = 0.5.
std::unique_ptr<Module> build(const std::shared_ptr<Device>& device) {
  Generator generator(1);
  auto line = std::make_unique<Linear>(4, 1, generator, device);
  const NoGrad no_grad;
  for (const auto& [name, tensor] : line->named_parameters()) {
    const bool is_weight = name == "weight";
    const std::vector<float> values =
        is_weight ? std::vector<float>{0.1F, 0.2F, 0.3F, 0.4F} : std::vector<float>{0.5F};
    Tensor(tensor).copy_from(Tensor::from_data(std::span(values), tensor.shape(), device));
  }
  return line;
}

/// x = sin(1 + 7 s + 3 t + 2 b + j), y = cos(s + t + b) of share s, step t and row b; the mean squared error.
class Rows final : public MicroBatches {
 public:
  Rows(int step, int share, std::shared_ptr<Device> device)
      : step_(step), share_(share), device_(std::move(device)) {}
  std::size_t count() const noexcept override { return 1; }
  Tensors inputs(std::size_t) override {
    std::vector<float> x;
    for (int b = 0; b < kRows; ++b) {
      for (int j = 0; j < 4; ++j)
        x.push_back(static_cast<float>(std::sin(1.0 + 7 * share_ + 3 * step_ + 2 * b + j)));
    }
    return {Tensor::from_data(std::span<const float>(x), {kRows, 4}, device_)};
  }
  Tensor loss(std::size_t, const Tensors& outputs) override {
    std::vector<float> y;
    for (int b = 0; b < kRows; ++b) y.push_back(static_cast<float>(std::cos(share_ + step_ + b)));
    const Tensor off = sub(outputs[0], Tensor::from_data(std::span<const float>(y), {kRows, 1}, device_));
    return mean(mul(off, off));
  }
  double weight(std::size_t) const override { return 1; }
  void losses_done() override {}
  void gradients_done() override {}

 private:
  int step_, share_;
  std::shared_ptr<Device> device_;
};

struct Case {
  int ranks, group;
  OuterOptions outer;
  int steps;
  ShardStage stage = ShardStage::optimizer;
};

/// The weights and the bias, equal on all ranks, after sync_state().
std::vector<float> trained(const Case& asked) {
  NullLog log;
  std::mutex mutex;
  std::vector<std::vector<float>> all;
  run_thread_ranks(asked.ranks, {}, log, [&](Communicator& communicator) {
    const auto device = make_device("cpu");
    StepClock clock;
    const StrategyContext context{communicator, device, std::chrono::seconds(30), {&clock}};
    const Mesh mesh(communicator, {{"replicate", kAutoSize}, {"shard", asked.group}}, kNever);
    const auto model =
        make_with_sync(context, "DiLoCo",
                       std::make_unique<DilocoSync>(
                           context, ShardOptions{.stage = asked.stage},
                           ShardGroups{mesh.group("shard"), &mesh.group("replicate")}, asked.outer));
    model->prepare({.build = build,
                    .make_optimizer =
                        [](const NamedTensors& parameters) {
                          return std::make_unique<AdamW>(parameters, AdamWOptions{.lr = 0.05});
                        }},
                   kNever);
    model->begin(kNever);
    for (int step = 0; step < asked.steps; ++step) {
      Rows rows(step, model->share().rank, device);
      model->step(rows, Exchange::all);
      check_replicas(model->replicas(), kNever);
    }
    model->sync_state(kNever);
    std::vector<float> values;
    for (const auto& [name, tensor] : model->module().named_parameters()) {
      const auto here = tensor.to_vector<float>();
      values.insert(values.end(), here.begin(), here.end());
    }
    communicator.barrier("end")->wait(kNever);
    const std::lock_guard lock(mutex);
    all.push_back(std::move(values));
  });
  for (const auto& one : all) EXPECT_EQ(one, all[0]) << "ranks differ";
  return all[0];
}

// As torch 2.15 has it: torch.optim.AdamW(lr=0.05) inside, torch.optim.SGD(lr=0.7, momentum=0.9,
// nesterov=True) outside, whose gradient is its weights less the mean of the replicas'. A last, shorter round
// ends with sync_state().
TEST(Diloco, GivesTheNumbersOfTorchsOptimizers) {
  const float tolerance = 2e-6F;
  EXPECT_THAT(trained({2, 1, {.every = 3}, 8}),
              Pointwise(FloatNear(tolerance),
                        std::vector<float>{0.4623091F, -0.3978596F, -0.2555799F, -0.0175341F, -0.1706244F}));
  EXPECT_THAT(trained({3, 1, {.every = 1}, 5}),
              Pointwise(FloatNear(tolerance),
                        std::vector<float>{0.4749200F, -0.2874068F, -0.1678373F, -0.0110368F, -0.0329624F}));
  EXPECT_THAT(trained({2, 1, {.every = 3, .lr = 1, .momentum = 0}, 8}),
              Pointwise(FloatNear(tolerance),
                        std::vector<float>{0.2914587F, -0.1177891F, -0.0112677F, 0.1766322F, 0.1493562F}))
      << "the mean of the replicas";
}

TEST(Diloco, GroupsCutTheirOptimizerWithTheSameNumbers) {
  const std::vector<float> two_groups = {0.4850246F, -0.3325603F, -0.2566304F, -0.0395105F, -0.1969278F};
  const std::vector<float> one_group = {0.4928800F, -0.4376794F, -0.2570574F, -0.0374108F, -0.2281064F};
  for (const ShardStage stage : {ShardStage::optimizer, ShardStage::gradients, ShardStage::parameters}) {
    EXPECT_THAT(trained({4, 2, {.every = 3}, 8, stage}), Pointwise(FloatNear(2e-6F), two_groups));
    EXPECT_THAT(trained({2, 2, {.every = 2}, 8, stage}), Pointwise(FloatNear(2e-6F), one_group));
  }
}

TEST(Diloco, NeedsAStep) {
  EXPECT_THAT(test::message_of([] {
                trained({1, 1, {.every = 0}, 1});
              }),
              HasSubstr("an outer step after 1 inner step or more, got 0"));
}

}  // namespace
}  // namespace dtrain
