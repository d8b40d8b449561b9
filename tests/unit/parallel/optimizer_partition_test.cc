// Optimizers whose state is partitioned among the ranks that hold the same parameters, with ranks as threads.
#include "parallel/sync/sharded/optimizer_partition.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "collectives/thread_ranks.h"
#include "parallel/forms.h"
#include "parallel/mesh.h"
#include "parallel/placed/placed_strategy.h"
#include "runtime/base/error.h"
#include "runtime/optim/adam.h"
#include "tests/support/message_of.h"
#include "tests/unit/parallel/layers.h"
#include "tests/unit/parallel/mesh_ranks.h"

namespace dtrain {
namespace {

using test::ChainBatches;
using test::Layers;
using test::MakeStrategy;
using test::run_mesh_ranks;
using testing::ElementsAre;
using testing::HasSubstr;

const Deadline kNever = Deadline::never();
constexpr auto kPatience = std::chrono::seconds(30);
constexpr std::size_t kMicroBatches = 4;

Tensor learning(std::int64_t size) {
  Tensor tensor = Tensor::zeros({size}, make_device("cpu"));
  tensor.set_requires_grad(true);
  return tensor;
}

TEST(DealOut, GivesTheLargestFirstToWhoHasLeast) {
  NamedTensors parameters;
  for (const std::int64_t size : {3, 10, 0, 4, 6, 0}) parameters.emplace_back("p", learning(size));
  EXPECT_THAT(partition_by_bytes(parameters, 2), ElementsAre(0, 0, 1, 1, 1, 1));
  EXPECT_THAT(partition_by_bytes(parameters, 1), ElementsAre(0, 0, 0, 0, 0, 0));
}

// What has no state weighs nothing.
TEST(DealOut, CountsNoFrozenParameters) {
  NamedTensors parameters;
  for (const std::int64_t size : {3, 1000, 2, 3}) parameters.emplace_back("p", learning(size));
  parameters[1].second.set_requires_grad(false);
  EXPECT_THAT(partition_by_bytes(parameters, 2), ElementsAre(0, 1, 0, 1));
}

TEST(OptimizerPartition, ComeFromTheirOwners) {
  NullLog log;
  run_thread_ranks(3, {}, log, [](Communicator& communicator) {
    NamedTensors parameters;
    for (const std::int64_t size : {3, 400'000, 0, 5, 200'000, 1, 100'000, 100'000, 100'000})
      parameters.emplace_back(fmt::format("p{}", parameters.size()), learning(size));
    OptimizerPartition partition(parameters, communicator);
    for (int round = 1; round < 3; ++round) {
      std::size_t i = 0;
      const NoGrad no_grad;
      for (const auto& [name, tensor] : partition.own())
        Tensor(tensor).fill(100.0 * round + communicator.rank());
      partition.broadcast_updates(kNever);
      for (const int owner : partition_by_bytes(parameters, 3)) {
        for (const float value : parameters[i].second.to_vector<float>())
          ASSERT_EQ(value, 100.0F * static_cast<float>(round) + static_cast<float>(owner)) << i;
        ++i;
      }
    }
  });
}

TEST(OptimizerPartition, WantOneForEachRank) {
  NullLog log;
  run_thread_ranks(3, {}, log, [](Communicator& communicator) {
    const NamedTensors two = {{"a", Tensor::zeros({4}, make_device("cpu"))},
                              {"b", Tensor::zeros({4}, make_device("cpu"))}};
    EXPECT_THAT(test::message_of([&] { const OptimizerPartition partition(two, communicator); }),
                HasSubstr("a parameter for each of the 3 workers"));
  });
}

/// Biases first, in a group of their own: the order in which their norms are added up.
std::unique_ptr<Optimizer> grouped_adam(const NamedTensors& parameters) {
  std::vector<ParameterGroup<AdamOptions>> groups(2, {{}, {.lr = 0.02}});
  for (const NamedTensor& parameter : parameters)
    groups[parameter.first.ends_with("bias") ? 0 : 1].parameters.push_back(parameter);
  std::erase_if(groups, [](const auto& group) { return group.parameters.empty(); });
  return std::make_unique<Adam>(groups);
}

ModelFactory factory_of(GradScaler* scaler) {
  return {.build = [](const std::shared_ptr<Device>& device) -> std::unique_ptr<Module> {
            return std::make_unique<Layers>(4, device);
          },
          .make_optimizer = grouped_adam,
          .scaler = scaler,
          .limits = {.norm = 0.01, .value = 0.002}};
}

struct Trained {
  std::map<std::string, std::vector<float>> model, optimizer;
  std::map<std::string, int> saved;    ///< by how many ranks
  std::vector<std::int64_t> elements;  ///< of the optimizer's state, by rank
};

Trained trained(const std::vector<MeshAxis>& axes, int ranks, const MakeStrategy& make) {
  std::mutex mutex;
  Trained trained;
  trained.elements.resize(static_cast<std::size_t>(ranks));
  run_mesh_ranks(axes, ranks, make,
                 [&](Strategy& strategy, GradScaler& scaler, Communicator& communicator,
                     const std::shared_ptr<Device>& device) {
                   strategy.prepare(factory_of(&scaler), kNever);
                   strategy.begin(kNever);
                   for (int step = 0; step < 4; ++step) {
                     const DataShare share = strategy.share();
                     const auto parts = static_cast<std::size_t>(share.parts);
                     ChainBatches passes(step, share, parts > 1 ? parts : kMicroBatches, device);
                     strategy.step(passes, Exchange::all);
                   }
                   const std::lock_guard lock(mutex);
                   const RankState parts = strategy.save();
                   for (const NamedShard& part : parts.model) {
                     trained.model[part.name] = part.tensor.to_vector<float>();
                     ++trained.saved[part.name];
                   }
                   for (const NamedShard& part : parts.optimizer) {
                     if (part.tensor.dtype() == DType::f32)
                       trained.optimizer[part.name] = part.tensor.to_vector<float>();
                     ++trained.saved[part.name];
                   }
                   for (const auto& [name, tensor] : strategy.optimizer()->named_state())
                     trained.elements[static_cast<std::size_t>(communicator.rank())] += tensor.numel();
                 });
  return trained;
}

/// Of `partition` each rank has about 1/copies of the state that it has of `all`.
void expect_the_same(const Trained& partition, const Trained& all, int copies) {
  EXPECT_EQ(partition.model, all.model);
  EXPECT_EQ(partition.optimizer, all.optimizer);
  for (const auto& [name, times] : partition.saved) EXPECT_EQ(times, 1) << name;
  constexpr std::int64_t kLargest = 2 * 64 + 1;  // of one parameter
  for (std::size_t i = 0; i < all.elements.size(); ++i) {
    EXPECT_GT(partition.elements[i], 0);
    EXPECT_LE(partition.elements[i], all.elements[i] / copies + kLargest) << "rank " << i;
  }
}

OptimizerState state(bool partitioned) {
  return partitioned ? OptimizerState::partitioned : OptimizerState::everywhere;
}

MakeStrategy data_parallel(bool partitioned) {
  return [partitioned](const StrategyContext& context, const Mesh& /*mesh*/, const PipelineLinks* /*links*/) {
    return make_data_parallel(context, ReducerOptions{}, false, state(partitioned));
  };
}

MakeStrategy virtual_workers(bool partitioned) {
  return [partitioned](const StrategyContext& context, const Mesh& /*mesh*/, const PipelineLinks* /*links*/) {
    return make_virtual_workers(context, 8, BucketOptions{}, state(partitioned));
  };
}

const std::vector<std::string> kTwo = {"cpu:0", "cpu:1"};

NamedDevices two_devices(const StrategyContext& context) {
  return {{"cpu:0", context.device}, {"cpu:1", make_device("cpu:1")}};
}

MakeStrategy placed(const MakeStrategy& inner) {
  return [inner](const StrategyContext& context, const Mesh& mesh, const PipelineLinks* links) {
    return std::make_unique<PlacedStrategy>(context.communicator, inner(context, mesh, links),
                                            PlaceOptions{kTwo, parse_places("fc1=cpu:1,fc2=cpu:1")},
                                            two_devices(context));
  };
}

MakeStrategy device_stages(bool partitioned) {
  return [partitioned](const StrategyContext& context, const Mesh& /*mesh*/, const PipelineLinks* /*links*/) {
    return make_device_pipeline(context, kTwo, two_devices(context), {}, state(partitioned));
  };
}

TEST(Dealt, WholeNetworksHaveTheBitsOfTheWholeOptimizer) {
  for (const int ranks : {1, 2, 3, 4}) {
    const std::vector<MeshAxis> axes = {{"dp", ranks}};
    for (const auto make : {data_parallel, virtual_workers})
      expect_the_same(trained(axes, ranks, make(true)), trained(axes, ranks, make(false)), ranks);
  }
}

// Small parameters of one owner are packed, but for those on other devices.
TEST(Dealt, PartsAndStagesOnDevicesHaveTheBitsOfOneDevice) {
  for (const int ranks : {1, 2}) {
    const std::vector<MeshAxis> axes = {{"dp", ranks}};
    const Trained one = trained(axes, ranks, data_parallel(false));
    expect_the_same(trained(axes, ranks, placed(data_parallel(true))), one, ranks);
    expect_the_same(trained(axes, ranks, device_stages(true)), one, ranks);
    expect_the_same(trained(axes, ranks, placed(virtual_workers(true))),
                    trained(axes, ranks, virtual_workers(false)), ranks);
  }
}

MakeStrategy pipeline(bool partitioned) {
  return [partitioned](const StrategyContext& context, const Mesh& mesh, const PipelineLinks* links) {
    return make_pipeline(
        context, PipelineGroups{*links, mesh.group("dp")},
        PipelineOptions{.shard = partitioned ? std::optional(ShardOptions{}) : std::nullopt});
  };
}

TEST(Dealt, PipelinesHaveTheBitsOfTheWholeOptimizer) {
  for (const int copies : {1, 2, 3}) {
    const std::vector<MeshAxis> axes = {{"dp", copies}, {"pp", 2}};
    expect_the_same(trained(axes, 2 * copies, pipeline(true)), trained(axes, 2 * copies, pipeline(false)),
                    copies);
  }
}

// Its layers are whole here: tensor_test.cc has split ones.
MakeStrategy tensor_parallel(bool partitioned) {
  return [partitioned](const StrategyContext& context, const Mesh& mesh, const PipelineLinks* links) {
    const RankGroup group{mesh.group("tp"), kPatience};
    if (links == nullptr) {
      const StrategyContext copies{mesh.group("dp"), context.device, context.patience, context.timer};
      return make_tensor_parallel(context, group,
                                  make_data_parallel(copies, ReducerOptions{}, true, state(partitioned)));
    }
    auto stages =
        make_pipeline(context, PipelineGroups{*links, mesh.group("dp")},
                      PipelineOptions{.shard = partitioned ? std::optional(ShardOptions{}) : std::nullopt});
    return make_tensor_parallel(context, group, std::move(stages));
  };
}

TEST(Dealt, TensorParallelismHasTheBitsOfTheWholeOptimizer) {
  const std::vector<MeshAxis> grid = {{"dp", 2}, {"tp", 2}}, stages = {{"dp", 2}, {"pp", 2}, {"tp", 2}};
  expect_the_same(trained(grid, 4, tensor_parallel(true)), trained(grid, 4, tensor_parallel(false)), 2);
  expect_the_same(trained(stages, 8, tensor_parallel(true)), trained(stages, 8, tensor_parallel(false)), 2);
}

}  // namespace
}  // namespace dtrain
