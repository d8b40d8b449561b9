// What copies of a stage share out, with ranks as threads: gradients and parameters in ranges have the bits
// of ranges with accumulation, whatever the schedule; limits, tied weights, bytes held against the formulas,
// and checkpoints that can be resumed in any grid.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "parallel/forms.h"
#include "runtime/optim/adamw.h"
#include "tests/support/put_together.h"
#include "tests/unit/parallel/layers.h"
#include "tests/unit/parallel/mesh_ranks.h"

namespace dtrain {
namespace {

using test::ChainBatches;
using test::largest_difference;
using test::Layers;
using test::MakeStrategy;
using Values = std::map<std::string, std::vector<float>>;
using Build = std::function<std::unique_ptr<Module>(const std::shared_ptr<Device>& device)>;

const Deadline kNever = Deadline::never();
constexpr auto kPatience = std::chrono::seconds(30);
constexpr std::size_t kMicroBatches = 4;
constexpr std::size_t kBucketBytes = 256;  // of layers of 288 bytes
constexpr ShardStage kStages[] = {ShardStage::gradients, ShardStage::parameters};

std::unique_ptr<Module> twelve_layers(const std::shared_ptr<Device>& device) {
  return std::make_unique<Layers>(12, device);
}

struct Way {
  PipelineSchedule schedule = PipelineSchedule::one_forward_one_backward;
  int chunks = 1;
  PipelineShape shape() const { return chunks > 1 ? PipelineShape::ring : PipelineShape::line; }
};
const Way kWays[] = {{PipelineSchedule::gpipe},
                     {PipelineSchedule::one_forward_one_backward},
                     {PipelineSchedule::interleaved, 2},
                     {PipelineSchedule::interleaved, 3}};

/// Ranks of an axis "dp" that each have the whole network.
MakeStrategy sharded(ShardStage stage) {
  return [stage](const StrategyContext& context, const Mesh& /*mesh*/, const PipelineLinks* /*links*/) {
    return make_sharded(context, ShardOptions{.stage = stage, .bucket_bytes = kBucketBytes});
  };
}

/// Stages; without `stage` each copy has all of its.
MakeStrategy pipeline(const Way& way, std::optional<ShardStage> stage) {
  return [=](const StrategyContext& context, const Mesh& mesh, const PipelineLinks* links) {
    std::optional<ShardOptions> shard;
    if (stage) shard = ShardOptions{.stage = *stage, .bucket_bytes = kBucketBytes};
    return make_pipeline(
        context, PipelineGroups{*links, mesh.group("dp")},
        PipelineOptions{.stages = {.schedule = way.schedule, .chunks = way.chunks}, .shard = shard});
  };
}

ModelFactory factory_of(const Build& build, const GradientLimits& limits = {}, GradScaler* scaler = nullptr) {
  return {.build = build,
          .make_optimizer = [](const NamedTensors& parameters) -> std::unique_ptr<Optimizer> {
            return std::make_unique<AdamW>(parameters, AdamWOptions{.lr = 0.02});
          },
          .scaler = scaler,
          .limits = limits};
}

/// What the ranks saved after three steps; each element once.
Values trained(const std::vector<MeshAxis>& axes, int ranks, const MakeStrategy& make,
               const GradientLimits& limits = {}, PipelineShape shape = PipelineShape::line,
               const Build& build = twelve_layers, bool scales = false) {
  std::mutex mutex;
  test::PutTogether saved;
  test::run_mesh_ranks(
      axes, ranks, make,
      [&](Strategy& strategy, GradScaler& scaler, Communicator& /*communicator*/,
          const std::shared_ptr<Device>& device) {
        strategy.prepare(factory_of(build, limits, scales ? &scaler : nullptr), kNever);
        strategy.begin(kNever);
        for (int step = 0; step < 3; ++step) {
          ChainBatches passes(step, strategy.share(), kMicroBatches, device);
          strategy.step(passes, Exchange::all);
          EXPECT_EQ(passes.gradients, 1);
        }
        strategy.sync_state(kNever);
        const RankState parts = strategy.save();
        const std::lock_guard lock(mutex);
        saved.add(parts.model), saved.add(parts.optimizer);
      },
      shape);
  for (const auto& [name, values] : saved.values)
    EXPECT_EQ(saved.counted[name], static_cast<std::int64_t>(values.size())) << name << ": each element once";
  return saved.values;
}

TEST(PipelineShards, HaveTheBitsOfRangesWithAccumulation) {
  for (const ShardStage stage : kStages) {
    for (const int copies : {1, 2, 3}) {
      const Values expected = trained({{"dp", copies}}, copies, sharded(stage));
      EXPECT_TRUE(expected.contains("fc11.bias.exp_avg"));
      for (const Way& way : kWays) {
        EXPECT_EQ(trained({{"dp", copies}, {"pp", 2}}, 2 * copies, pipeline(way, stage), {}, way.shape()),
                  expected)
            << copies << " copies, stage " << static_cast<int>(stage) << ", " << way.chunks << " chunks";
      }
    }
  }
}

// Each micro-batch is averaged over the copies before it is added up: another order of sums.
TEST(PipelineShards, AgreeWithStagesThatAreWhole) {
  const Way way;
  const std::vector<MeshAxis> axes = {{"dp", 2}, {"pp", 3}};
  GradientLimits limits;
  for (const auto& [norm, value] :
       {std::pair<std::optional<double>, std::optional<double>>{{}, {}}, {0.01, {}}, {{}, 1e-3}}) {
    limits.norm = norm, limits.value = value;
    const Values expected = trained(axes, 6, pipeline(way, std::nullopt), limits);
    for (const ShardStage stage : kStages)
      EXPECT_LT(largest_difference(trained(axes, 6, pipeline(way, stage), limits), expected), 1e-5);
    if (norm || value) {
      EXPECT_GT(largest_difference(trained(axes, 6, pipeline(way, std::nullopt)), expected), 1e-3)
          << "a limit that bites";
    }
  }
}

/// Its modules in a row, with tanh behind each.
class TanhChain : public Module, public Chained {
 public:
  Tensor forward(const Tensor& x) override { return through(chain(), x); }
  std::vector<LayerUnit> chain() const override {
    std::vector<LayerUnit> chain;
    for (const auto& [name, layer] : children())
      chain.push_back({{{name, layer}}, [layer = layer](const Tensor& x) { return tanh((*layer)(x)); }});
    return chain;
  }
};

/// A layer with the weights of another one.
class Reuses final : public Module {
 public:
  explicit Reuses(const Tensor& weight) : weight_(add_parameter("weight", weight)) {}
  Tensor forward(const Tensor& x) override { return linear(x, weight_, Tensor()); }

 private:
  Tensor weight_;
};

/// Layers of which the first and the last, in different stages, share their weights.
class TiedLayers final : public TanhChain {
 public:
  explicit TiedLayers(const std::shared_ptr<Device>& device) {
    Generator generator(11);
    for (int i = 0; i < 3; ++i)
      add_module(fmt::format("fc{}", i), std::make_shared<Linear>(8, 8, generator, device));
    add_module("head", std::make_shared<Reuses>(children()[0].second->own_parameters()[0].second));
  }
};

std::unique_ptr<Module> tied_layers(const std::shared_ptr<Device>& device) {
  return std::make_unique<TiedLayers>(device);
}

// Copies of tied weights own the same ranges, whose gradients stages add up.
TEST(PipelineShards, TieWeightsOfStages) {
  for (const ShardStage stage : kStages) {
    const Values expected = trained({{"dp", 2}}, 2, sharded(stage), {.norm = 0.05, .value = {}},
                                    PipelineShape::line, tied_layers);
    const Values got = trained({{"dp", 2}, {"pp", 2}}, 4, pipeline({}, stage), {.norm = 0.05, .value = {}},
                               PipelineShape::line, tied_layers);
    EXPECT_EQ(got.at("head.weight"), got.at("fc0.weight"));
    EXPECT_FALSE(got.contains("head.weight.exp_avg")) << "state is saved once";
    EXPECT_LT(largest_difference(got, expected), 1e-5);
  }
}

// The layers are whole here: rows of the table of forms have split ones.
TEST(PipelineShards, GoTogetherWithDividedLayers) {
  const auto make = [](std::optional<ShardStage> stage) -> MakeStrategy {
    return [stage](const StrategyContext& context, const Mesh& mesh, const PipelineLinks* links) {
      std::optional<ShardOptions> shard;
      if (stage) shard = ShardOptions{.stage = *stage, .bucket_bytes = kBucketBytes};
      auto stages =
          make_pipeline(context, PipelineGroups{*links, mesh.group("dp")}, PipelineOptions{.shard = shard});
      return make_tensor_parallel(context, RankGroup{mesh.group("tp"), kPatience}, std::move(stages));
    };
  };
  const std::vector<MeshAxis> axes = {{"dp", 2}, {"pp", 2}, {"tp", 2}};
  for (const bool scales : {false, true}) {
    const Values expected =
        trained(axes, 8, make({}), {.norm = 0.01, .value = {}}, PipelineShape::line, twelve_layers, scales);
    for (const ShardStage stage : kStages) {
      EXPECT_LT(largest_difference(trained(axes, 8, make(stage), {.norm = 0.01, .value = {}},
                                           PipelineShape::line, twelve_layers, scales),
                                   expected),
                1e-5);
    }
  }
}

/// Wide layers, so that what is kept shows beside what is on its way.
class WideLayers final : public TanhChain {
 public:
  explicit WideLayers(const std::shared_ptr<Device>& device) {
    Generator generator(5);
    for (int i = 0; i < 6; ++i)
      add_module(fmt::format("fc{}", i), std::make_shared<Linear>(kWidth, kWidth, generator, device));
  }
  static constexpr std::int64_t kWidth = 512;
};

/// Micro-batches for them; notes the bytes between backward and the update.
class WideBatches final : public MicroBatches {
 public:
  explicit WideBatches(std::shared_ptr<Device> device) : device_(std::move(device)) {}
  std::size_t count() const noexcept override { return kMicroBatches; }
  Tensors inputs(std::size_t) override { return {Tensor::full({2, WideLayers::kWidth}, 0.5, device_)}; }
  Tensor loss(std::size_t, const Tensors& outputs) override { return mean(square(outputs[0] + 1.0)); }
  double weight(std::size_t) const override { return 1.0 / kMicroBatches; }
  void losses_done() override {}
  void gradients_done() override { held = device_->allocated_bytes(); }
  std::size_t held = 0;

 private:
  std::shared_ptr<Device> device_;
};

// Of a stage's E elements and C copies: gradients 4 E + 12 E / C bytes, parameters 16 E / C, and two buckets.
TEST(PipelineShardsMemory, IsThatOfTheFormulas) {
  constexpr std::size_t kBuckets = 2U << 20, kBatches = 64U << 10;
  constexpr std::size_t kElements = 3 * WideLayers::kWidth * (WideLayers::kWidth + 1);  // of a stage
  for (const int copies : {2, 4}) {
    for (const ShardStage stage : kStages) {
      std::mutex mutex;
      std::size_t most = 0, least = SIZE_MAX;
      const MakeStrategy make = [&](const StrategyContext& context, const Mesh& mesh,
                                    const PipelineLinks* links) {
        return make_pipeline(context, PipelineGroups{*links, mesh.group("dp")},
                             PipelineOptions{.shard = ShardOptions{.stage = stage}});
      };
      test::run_mesh_ranks({{"dp", copies}, {"pp", 2}}, 2 * copies, make,
                           [&](Strategy& strategy, GradScaler& /*scaler*/, Communicator& /*communicator*/,
                               const std::shared_ptr<Device>& device) {
                             strategy.prepare(factory_of([](const std::shared_ptr<Device>& on) {
                                                return std::make_unique<WideLayers>(on);
                                              }),
                                              kNever);
                             strategy.begin(kNever);
                             WideBatches passes(device);
                             for (int step = 0; step < 2; ++step) strategy.step(passes, Exchange::all);
                             const std::lock_guard lock(mutex);
                             most = std::max(most, passes.held), least = std::min(least, passes.held);
                           });
      const std::size_t bytes = 4 * kElements, part = bytes / static_cast<std::size_t>(copies);
      const std::size_t formula = stage == ShardStage::gradients ? bytes + 3 * part : 4 * part;
      fmt::print("{} copies of 2 stages, stage {} of sharding: {} bytes by the formula, held {} to {}\n",
                 copies, static_cast<int>(stage) + 1, formula, least, most);
      EXPECT_LE(most, formula + kBuckets + kBatches);
      EXPECT_GE(least, formula) << "something is not counted";
    }
  }
}

}  // namespace
}  // namespace dtrain
