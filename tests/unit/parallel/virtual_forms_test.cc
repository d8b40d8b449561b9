// Virtual workers whose network is on several devices, in stages or split, with ranks as threads: the same
// bits for any number of ranks, wherever parts of the network are, and for any number of copies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "collectives/thread_ranks.h"
#include "parallel/forms.h"
#include "parallel/mesh.h"
#include "parallel/placed/placed_strategy.h"
#include "runtime/optim/adam.h"
#include "tests/support/message_of.h"
#include "tests/support/put_together.h"
#include "tests/unit/parallel/layers.h"
#include "tests/unit/parallel/mesh_ranks.h"
#include "tests/unit/parallel/split_network.h"

namespace dtrain {
namespace {

using test::ChainBatches;
using test::Layers;
using test::MakeStrategy;
using test::run_mesh_ranks;
using test::Split;

const Deadline kNever = Deadline::never();
constexpr auto kPatience = std::chrono::seconds(30);
constexpr int kParts = 8;

std::unique_ptr<Optimizer> adam(const NamedTensors& parameters) {
  return std::make_unique<Adam>(parameters, AdamOptions{.lr = 0.02});
}

constexpr GradientLimits kLimits = {.norm = 0.01, .value = 0.002};

using Values = std::map<std::string, std::vector<float>>;

/// Three steps.
void train(Strategy& strategy, GradScaler& scaler, const std::shared_ptr<Device>& device) {
  strategy.prepare({.build = [](const std::shared_ptr<Device>& on) -> std::unique_ptr<Module> {
                      return std::make_unique<Layers>(6, on);
                    },
                    .make_optimizer = adam,
                    .scaler = &scaler,
                    .limits = kLimits},
                   kNever);
  strategy.begin(kNever);
  for (int step = 0; step < 3; ++step) {
    const DataShare share = strategy.share();
    ChainBatches passes(step, share, static_cast<std::size_t>(share.parts), device);
    strategy.step(passes);
  }
}

/// Parameters and the optimizer's state after three steps on `ranks` ranks with devices of their own.
Values trained_on(int ranks, const std::string& map) {
  std::mutex mutex;
  Values values;
  const std::vector<std::string> names = {"cpu:0", "cpu:1", "cpu:2"};
  const MakeStrategy make = [&](const StrategyContext& context, const Mesh&,
                                const PipelineLinks*) -> std::unique_ptr<Strategy> {
    auto parts = make_virtual_workers(context, kParts, BucketOptions{.first_bytes = 512, .cap_bytes = 512});
    if (map.empty()) return parts;
    NamedDevices devices = {{names[0], context.device}};
    for (const std::string& name : {names[1], names[2]}) devices.emplace(name, make_device(name));
    return std::make_unique<PlacedStrategy>(context.communicator, std::move(parts),
                                            PlaceOptions{names, parse_places(map)}, devices);
  };
  run_mesh_ranks(
      {{"dp", ranks}}, ranks, make,
      [&](Strategy& strategy, GradScaler& scaler, Communicator&, const std::shared_ptr<Device>& device) {
        train(strategy, scaler, device);
        const std::lock_guard lock(mutex);
        const RankState saved = strategy.save();
        for (const auto* parts : {&saved.model, &saved.optimizer}) {
          for (const NamedShard& part : *parts) values[part.name] = part.tensor.to_vector<float>();
        }
      });
  return values;
}

TEST(VirtualWorkersOnDevices, HaveTheBitsOfOneDeviceForAnyNumberOfRanks) {
  const Values expected = trained_on(1, "");
  EXPECT_TRUE(expected.contains("fc3.weight.exp_avg"));
  for (const int ranks : {1, 2, 3}) {
    for (const char* map : {"fc0=cpu:0,fc2=cpu:1,fc3=cpu:2", "fc5=cpu:2"})
      EXPECT_EQ(trained_on(ranks, map), expected) << ranks << " ranks, " << map;
  }
}

/// The same in stages, whose copies have some parts each as their micro-batches.
Values trained_in_stages(int copies, int stages, PipelineSchedule schedule, bool partitioned) {
  std::mutex mutex;
  test::PutTogether saved;
  const MakeStrategy make = [&](const StrategyContext& context, const Mesh& mesh,
                                const PipelineLinks* links) -> std::unique_ptr<Strategy> {
    return make_pipeline(context, PipelineGroups{*links, mesh.group("dp")},
                         PipelineOptions{.stages = {.schedule = schedule},
                                         .shard = partitioned ? std::optional(ShardOptions{}) : std::nullopt,
                                         .virtual_workers = kParts});
  };
  run_mesh_ranks(
      {{"dp", copies}, {"pp", stages}}, copies * stages, make,
      [&](Strategy& strategy, GradScaler& scaler, Communicator&, const std::shared_ptr<Device>& device) {
        train(strategy, scaler, device);
        const RankState parts = strategy.save();
        const std::lock_guard lock(mutex);
        saved.add(parts.model), saved.add(parts.optimizer);
      });
  for (const auto& [name, values] : saved.values)
    EXPECT_EQ(saved.counted[name], static_cast<std::int64_t>(values.size())) << name << ": once";
  return saved.values;
}

TEST(VirtualWorkersInStages, HaveTheBitsOfOneRankForAnyNumberOfStagesAndCopies) {
  const Values expected = trained_on(1, "");
  for (const int copies : {1, 2, 3, 4}) {
    for (const int stages : {2, 3}) {
      for (const auto schedule : {PipelineSchedule::gpipe, PipelineSchedule::one_forward_one_backward}) {
        for (const bool partitioned : {false, true}) {
          const Values got = trained_in_stages(copies, stages, schedule, partitioned);
          for (const auto& [name, values] : expected) {
            if (!name.ends_with(".step")) {  // an integer
              EXPECT_EQ(got.at(name), values)
                  << name << ", " << copies << " copies of " << stages << " stages";
            }
          }
        }
      }
    }
  }
}

TEST(VirtualWorkersInStages, AreWholeAndAtLeastOneACopy) {
  const auto made = [](const PipelineOptions& options) {
    return test::message_of([&] {
      run_mesh_ranks(
          {{"dp", 3}, {"pp", 2}}, 6,
          [&](const StrategyContext& context, const Mesh& mesh, const PipelineLinks* links) {
            return make_pipeline(context, PipelineGroups{*links, mesh.group("dp")}, options);
          },
          [](Strategy&, GradScaler&, Communicator&, const std::shared_ptr<Device>&) {});
    });
  };
  EXPECT_THAT(made({.virtual_workers = 2}), testing::HasSubstr("each of 3 copies"));
  EXPECT_THAT(made({.stages = {.chunks = 2}, .virtual_workers = 4}),
              testing::HasSubstr("got 4 parts, 2 chunks"));
  EXPECT_THAT(made({.shard = ShardOptions{.stage = ShardStage::gradients}, .virtual_workers = 4}),
              testing::HasSubstr("and ranges"));
}

/// Words of each part of a rank, on any worker.
class Words final : public MicroBatches {
 public:
  Words(int step, DataShare share, const RankGroup& group, std::shared_ptr<Device> device)
      : step_(step), share_(share), group_(group), device_(std::move(device)) {}
  std::size_t count() const noexcept override { return static_cast<std::size_t>(share_.parts); }
  Tensors inputs(std::size_t i) override { return {drawn(i, 0)}; }
  Tensor loss(std::size_t i, const Tensors& outputs) override {
    return Split::loss_of(outputs[0], drawn(i, 500), group_);
  }
  double weight(std::size_t) const override { return 1.0; }
  void losses_done() override {}
  void gradients_done() override {}

 private:
  Tensor drawn(std::size_t i, std::size_t what) const {
    const auto part = static_cast<std::size_t>(share_.rank) + i;
    return test::words(1'000 * static_cast<std::size_t>(step_) + part + what, test::SplitShape{}.words,
                       device_);
  }
  int step_;
  DataShare share_;
  RankGroup group_;
  std::shared_ptr<Device> device_;
};

/// What the files of a grid hold after three steps.
test::PutTogether split(int copies, int slices, OptimizerState state) {
  std::mutex mutex;
  test::PutTogether saved;
  NullLog log;
  run_thread_ranks(copies * slices, {}, log, [&](Communicator& communicator) {
    const auto device = make_device("cpu");
    StepClock clock;
    const Mesh mesh(communicator, {{"dp", copies}, {"tp", slices}}, kNever);
    const RankGroup group{mesh.group("tp"), kPatience};
    GradScaler scaler(device, {.initial_scale = 1024});
    const auto model = make_tensor_parallel(
        {communicator, device, kPatience, {&clock}}, group,
        make_virtual_workers(StrategyContext{mesh.group("dp"), device, kPatience, {&clock}}, kParts,
                             BucketOptions{}, state));
    Strategy& strategy = *model;
    strategy.prepare(
        {.build =
             [&](const std::shared_ptr<Device>& on) { return std::make_unique<Split>(on, group, false); },
         .make_optimizer = adam,
         .scaler = &scaler,
         .limits = kLimits},
        kNever);
    strategy.begin(kNever);
    for (int step = 0; step < 3; ++step) {
      Words passes(step, strategy.share(), group, device);
      strategy.step(passes, Exchange::all);
    }
    const RankState parts = strategy.save();
    const std::lock_guard lock(mutex);
    saved.add(parts.model), saved.add(parts.optimizer);
  });
  for (const auto& [name, values] : saved.values)
    EXPECT_EQ(saved.counted[name], static_cast<std::int64_t>(values.size())) << name << ": once";
  return saved;
}

TEST(VirtualWorkersOfSlices, HaveTheSameBitsForAnyNumberOfCopies) {
  const auto expected = split(1, 2, OptimizerState::everywhere).values;
  EXPECT_TRUE(expected.contains("block1_down.weight.exp_avg") && expected.contains("norm.bias"));
  for (const int copies : {1, 2, 3, 4}) {
    for (const OptimizerState state : {OptimizerState::everywhere, OptimizerState::partitioned})
      EXPECT_EQ(split(copies, 2, state).values, expected) << copies << " copies";
  }
}

}  // namespace
}  // namespace dtrain
