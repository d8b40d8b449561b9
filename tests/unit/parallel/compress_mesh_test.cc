// PowerSGD among the copies of parts of a network, with ranks as threads: the bits of data parallelism
// wherever the network is cut, and what is saved of its memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "parallel/forms.h"
#include "parallel/sync/hooks/power_sgd.h"
#include "runtime/optim/sgd.h"
#include "tests/support/put_together.h"
#include "tests/unit/parallel/corrupted_micro_batches.h"
#include "tests/unit/parallel/layers.h"
#include "tests/unit/parallel/mesh_ranks.h"
#include "tests/unit/parallel/split_network.h"

namespace dtrain {
namespace {

using test::CorruptedMicroBatches;
using test::MakeStrategy;
using test::PutTogether;
using test::Split;
using testing::Contains;
using testing::Key;
using testing::Not;

const Deadline kNever = Deadline::never();
constexpr auto kPatience = std::chrono::seconds(30);
constexpr std::size_t kMicroBatches = 4;

ReducerOptions compressed() { return {.exchange = power_sgd({.rank = 1, .start_step = 1, .seed = 3})}; }

/// What `steps` steps leave behind, put together of all ranks, after sync_state(); in the last of them
/// `bad_rank` overflows.
PutTogether trained(const std::vector<MeshAxis>& axes, int ranks, const MakeStrategy& make, int steps = 4,
                    int bad_rank = -1) {
  std::mutex mutex;
  PutTogether saved;
  test::run_mesh_ranks(
      axes, ranks, make,
      [&](Strategy& strategy, GradScaler& scaler, Communicator& communicator,
          const std::shared_ptr<Device>& device) {
        strategy.prepare(
            {.build =
                 [](const std::shared_ptr<Device>& home) { return std::make_unique<test::Layers>(4, home); },
             .make_optimizer = [](const NamedTensors& parameters) -> std::unique_ptr<Optimizer> {
               return std::make_unique<Sgd>(parameters, SgdOptions{.lr = 0.2});
             },
             .scaler = &scaler},
            kNever);
        strategy.begin(kNever);
        for (int step = 0; step < steps; ++step) {
          test::ChainBatches passes(step, strategy.share(), kMicroBatches, device);
          CorruptedMicroBatches corrupted(passes, strategy,
                                          communicator.rank() == bad_rank && step + 1 == steps);
          strategy.step(corrupted, Exchange::all);
        }
        EXPECT_EQ(scaler.skipped(), bad_rank < 0 ? 0 : 1);
        EXPECT_TRUE(strategy.sync_state_alters_steps());
        strategy.sync_state(kNever);
        const RankState parts = strategy.save();
        {
          const std::lock_guard lock(mutex);
          saved.add(parts.model), saved.add(parts.optimizer);
        }
        communicator.barrier("saved")->wait(kNever);
      });
  for (const auto& [name, values] : saved.values)
    EXPECT_EQ(saved.counted[name], static_cast<std::int64_t>(values.size())) << name << ": each element once";
  return saved;
}

PipelineOptions stage_options(bool partitioned) {
  PipelineOptions options;
  options.reducer = compressed();
  options.shard = partitioned ? std::optional(ShardOptions{}) : std::nullopt;
  return options;
}

MakeStrategy pipeline(bool partitioned) {
  return [partitioned](const StrategyContext& context, const Mesh& mesh, const PipelineLinks* links) {
    return make_pipeline(context, PipelineGroups{*links, mesh.group("dp")}, stage_options(partitioned));
  };
}

std::unique_ptr<ParallelModel> among_copies(bool partitioned, const StrategyContext& context,
                                            const Mesh& mesh) {
  const StrategyContext copies{mesh.group("dp"), context.device, context.patience, context.timer};
  return make_data_parallel(copies, compressed(), true,
                            partitioned ? OptimizerState::partitioned : OptimizerState::everywhere);
}

MakeStrategy data_parallel(bool partitioned) {
  return [partitioned](const StrategyContext& context, const Mesh& mesh, const PipelineLinks* /*links*/) {
    return among_copies(partitioned, context, mesh);
  };
}

/// Of layers that are whole.
MakeStrategy tensor_parallel(bool partitioned) {
  return [partitioned](const StrategyContext& context, const Mesh& mesh,
                       const PipelineLinks* links) -> std::unique_ptr<Strategy> {
    const RankGroup group{mesh.group("tp"), kPatience};
    if (links == nullptr)
      return make_tensor_parallel(context, group, among_copies(partitioned, context, mesh));
    auto stages =
        make_pipeline(context, PipelineGroups{*links, mesh.group("dp")}, stage_options(partitioned));
    return make_tensor_parallel(context, group, std::move(stages));
  };
}

TEST(PowerSgdInAMesh, HasTheBitsOfDataParallelism) {
  const PutTogether expected = trained({{"dp", 2}}, 2, data_parallel(false));
  EXPECT_THAT(expected.values, Contains(Key("exchange/fc3.weight.lost")));
  EXPECT_THAT(expected.values, Contains(Key("exchange/steps")));
  for (const bool partitioned : {false, true}) {
    EXPECT_EQ(trained({{"dp", 2}}, 2, data_parallel(partitioned)).values, expected.values);
    EXPECT_EQ(trained({{"dp", 2}, {"pp", 2}}, 4, pipeline(partitioned)).values, expected.values);
    EXPECT_EQ(trained({{"dp", 2}, {"tp", 2}}, 4, tensor_parallel(partitioned)).values, expected.values);
    EXPECT_EQ(trained({{"dp", 2}, {"pp", 2}, {"tp", 2}}, 8, tensor_parallel(partitioned)).values,
              expected.values);
  }
}

// Whichever rank overflowed: the step is not made, and not remembered.
TEST(PowerSgdInAMesh, ForgetsAStepThatIsSkipped) {
  const PutTogether expected = trained({{"dp", 2}}, 2, data_parallel(false), 3);
  const auto expect_forgotten = [&](const std::vector<MeshAxis>& axes, int ranks, const MakeStrategy& make) {
    auto values = trained(axes, ranks, make, 4, ranks - 1).values;
    EXPECT_EQ(values.at("exchange/steps"), std::vector<float>{4});
    values["exchange/steps"] = {3};
    EXPECT_EQ(values, expected.values);
  };
  expect_forgotten({{"dp", 2}, {"pp", 2}}, 4, pipeline(false));
  expect_forgotten({{"dp", 2}, {"tp", 2}}, 4, tensor_parallel(false));
  expect_forgotten({{"dp", 2}, {"tp", 2}}, 4, tensor_parallel(true));
  expect_forgotten({{"dp", 2}, {"pp", 2}, {"tp", 2}}, 8, tensor_parallel(false));
}

/// One step of a split network whose gradients travel as products of one column and one row.
class OneStep final : public MicroBatches {
 public:
  OneStep(int step, DataShare share, const RankGroup& group, std::shared_ptr<Device> device)
      : seed_(static_cast<std::uint64_t>(10 * step + share.rank)),
        group_(group),
        device_(std::move(device)) {}
  std::size_t count() const noexcept override { return 1; }
  Tensors inputs(std::size_t) override { return {test::words(seed_, 40, device_)}; }
  Tensor loss(std::size_t, const Tensors& outputs) override {
    return Split::loss_of(outputs[0], test::words(seed_ + 1000, 40, device_), group_);
  }
  double weight(std::size_t) const override { return 1; }
  void losses_done() override {}
  void gradients_done() override {}

 private:
  std::uint64_t seed_;
  RankGroup group_;
  std::shared_ptr<Device> device_;
};

// What was lost is cut as the parameters are; each slice has a basis of its own, what is whole has one.
TEST(PowerSgdInAMesh, SavesWhatSlicesLostAndTheirBases) {
  std::mutex mutex;
  PutTogether saved;
  NullLog log;
  run_thread_ranks(4, {}, log, [&](Communicator& communicator) {
    const auto device = make_device("cpu");
    StepClock clock;
    const Mesh mesh(communicator, {{"dp", 2}, {"tp", 2}}, kNever);
    const RankGroup group{mesh.group("tp"), kPatience};
    const auto model = make_tensor_parallel(
        {communicator, device, kPatience, {&clock}}, group,
        make_data_parallel(StrategyContext{mesh.group("dp"), device, kPatience, {&clock}}, compressed(),
                           true));
    Strategy& strategy = *model;
    strategy.prepare(
        {.build =
             [&](const std::shared_ptr<Device>& home) { return std::make_unique<Split>(home, group, false); },
         .make_optimizer = [](const NamedTensors& parameters) -> std::unique_ptr<Optimizer> {
           return std::make_unique<Sgd>(parameters, SgdOptions{.lr = 0.1});
         }},
        kNever);
    strategy.begin(kNever);
    for (int step = 0; step < 3; ++step) {
      OneStep passes(step, strategy.share(), group, device);
      strategy.step(passes, Exchange::all);
    }
    strategy.sync_state(kNever);
    const RankState parts = strategy.save();
    {
      const std::lock_guard lock(mutex);
      saved.add(parts.optimizer);
    }
    communicator.barrier("saved")->wait(kNever);
  });
  for (const auto& [name, values] : saved.values)
    EXPECT_EQ(saved.counted[name], static_cast<std::int64_t>(values.size())) << name << ": each element once";
  const auto size = [&](const std::string& name) { return saved.values["exchange/" + name].size(); };
  EXPECT_EQ(size("block0_up.weight.lost"), 24U * 16U);
  EXPECT_EQ(size("block0_down.weight.lost"), 24U * 16U);
  for (const char* slice : {".1of2", ".2of2"}) {
    EXPECT_EQ(size(std::string("block0_up.weight.basis") + slice), 16U);
    EXPECT_EQ(size(std::string("block0_down.weight.basis") + slice), 12U);
  }
  EXPECT_NE(saved.values["exchange/block0_down.weight.basis.1of2"],
            saved.values["exchange/block0_down.weight.basis.2of2"]);
  EXPECT_EQ(saved.values["exchange/steps"], std::vector<float>{3});
  EXPECT_THAT(saved.values, Not(Contains(Key("exchange/block0_up.weight.basis"))));
}

}  // namespace
}  // namespace dtrain
