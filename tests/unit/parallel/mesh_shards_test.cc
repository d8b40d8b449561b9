// What copies of slices share out within tensor parallelism, with ranks as threads: the bits of the same mesh
// without, a limit on the norm of all slices together, bytes held against the formulas, each element saved
// once.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "collectives/thread_ranks.h"
#include "parallel/forms.h"
#include "parallel/mesh.h"
#include "runtime/optim/adamw.h"
#include "tests/support/put_together.h"
#include "tests/unit/parallel/split_network.h"

namespace dtrain {
namespace {

using test::largest_difference;
using test::Split;
using test::SplitShape;

const Deadline kNever = Deadline::never();
constexpr auto kPatience = std::chrono::seconds(60);

struct Setting {
  int copies = 2, slices = 2;
  bool sequence = false;
  std::size_t passes = 1;
  GradientLimits limits = {};
  SplitShape shape = {};
  std::size_t bucket_bytes = 2048;
};

/// Words that depend on step, share and pass alone.
class Words final : public MicroBatches {
 public:
  Words(int step, DataShare share, const Setting& setting, const RankGroup& group,
        std::shared_ptr<Device> device)
      : step_(step), share_(share), setting_(setting), group_(group), device_(std::move(device)) {}
  std::size_t count() const noexcept override { return setting_.passes; }
  Tensors inputs(std::size_t i) override { return {drawn(i)}; }
  Tensor loss(std::size_t i, const Tensors& outputs) override {
    return Split::loss_of(outputs[0], drawn(500 + i), group_);
  }
  double weight(std::size_t) const override { return 1.0 / static_cast<double>(setting_.passes); }
  void losses_done() override {}
  void gradients_done() override { held = device_->allocated_bytes(); }

  std::size_t held = 0;  ///< between backward and the update

 private:
  Tensor drawn(std::size_t i) const {
    return test::words(
        10'000 * static_cast<std::size_t>(step_) + 1'000 * static_cast<std::size_t>(share_.rank) + i,
        setting_.shape.words, device_);
  }
  int step_;
  DataShare share_;
  const Setting& setting_;
  RankGroup group_;
  std::shared_ptr<Device> device_;
};

using Values = std::map<std::string, std::vector<float>>;

struct Memory {
  std::size_t elements = 0;  ///< of a rank's slices
  std::size_t most_held = 0, least_held = SIZE_MAX, most_ever = 0, two_modules = 0;
};

struct Trained {
  test::PutTogether saved;
  Memory memory;
};

ModelFactory factory_of(const Setting& setting, const RankGroup& group, GradScaler* scaler) {
  return {.build =
              [&setting, group](const std::shared_ptr<Device>& device) {
                return std::make_unique<Split>(device, group, setting.sequence, setting.shape);
              },
          .make_optimizer = [](const NamedTensors& parameters) -> std::unique_ptr<Optimizer> {
            return std::make_unique<AdamW>(parameters, AdamWOptions{.lr = 0.01});
          },
          .scaler = scaler,
          .limits = setting.limits};
}

/// Four steps; without `stage` copies have all of their slices.
Trained trained(const Setting& setting, std::optional<ShardStage> stage) {
  std::mutex mutex;
  Trained trained;
  NullLog log;
  run_thread_ranks(setting.copies * setting.slices, {}, log, [&](Communicator& communicator) {
    const auto device = make_device("cpu");
    StepClock clock;
    const Mesh mesh(communicator, {{"dp", setting.copies}, {"tp", setting.slices}}, kNever);
    const RankGroup group{mesh.group("tp"), kPatience};
    const StrategyContext copies{mesh.group("dp"), device, kPatience, {&clock}};
    std::unique_ptr<ParallelModel> inner = make_data_parallel(copies);
    if (stage) {
      inner = make_sharded(copies, ShardOptions{.stage = *stage, .bucket_bytes = setting.bucket_bytes});
    }
    const auto model =
        make_tensor_parallel({communicator, device, kPatience, {&clock}}, group, std::move(inner));
    Strategy& strategy = *model;
    GradScaler scaler(device, {.initial_scale = 1024});
    strategy.prepare(factory_of(setting, group, &scaler), kNever);
    strategy.begin(kNever);
    EXPECT_EQ(strategy.computes_together(), stage == ShardStage::parameters);
    std::size_t held = 0;
    for (int step = 0; step < 4; ++step) {
      Words passes(step, strategy.share(), setting, group, device);
      strategy.step(passes, Exchange::all);
      held = passes.held;
    }
    const RankState parts = strategy.save();
    const std::lock_guard lock(mutex);
    trained.saved.add(parts.model), trained.saved.add(parts.optimizer);
    Memory& memory = trained.memory;
    memory.elements = static_cast<std::size_t>(strategy.module().parameter_count());
    memory.most_held = std::max(memory.most_held, held);
    memory.least_held = std::min(memory.least_held, held);
    memory.most_ever = std::max(memory.most_ever, device->peak_allocated_bytes());
    if (stage == ShardStage::parameters)
      memory.two_modules = model->sync().shards()->fully_sharded()->two_largest_bytes();
  });
  for (const auto& [name, values] : trained.saved.values)
    EXPECT_EQ(trained.saved.counted[name], static_cast<std::int64_t>(values.size()))
        << name << ": each element once";
  return trained;
}

constexpr ShardStage kStages[] = {ShardStage::gradients, ShardStage::parameters};

struct Grid {
  int copies, slices;
  bool sequence;
};

class MeshShards : public testing::TestWithParam<Grid> {
 protected:
  Setting setting() const {
    return {.copies = GetParam().copies, .slices = GetParam().slices, .sequence = GetParam().sequence};
  }
};

TEST_P(MeshShards, HaveTheBitsOfTheMeshWithout) {
  Setting setting = this->setting();
  const Values expected = trained(setting, std::nullopt).saved.values;
  EXPECT_TRUE(expected.contains("block1_down.weight.exp_avg_sq") && expected.contains("norm.bias.step"));
  for (const ShardStage stage : kStages)
    EXPECT_EQ(trained(setting, stage).saved.values, expected) << static_cast<int>(stage);
  setting.limits.value = 1e-3;
  const Values limited = trained(setting, std::nullopt).saved.values;
  EXPECT_NE(limited, expected) << "a limit that bites";
  for (const ShardStage stage : kStages)
    EXPECT_EQ(trained(setting, stage).saved.values, limited) << static_cast<int>(stage);
}

// A norm is added up by ranges, and passes after the copies: sums in other orders.
TEST_P(MeshShards, LimitTheNormOfAllSlicesAndAccumulate) {
  Setting limited = setting(), several = setting();
  limited.limits.norm = 0.01;
  several.passes = 3;
  for (const Setting& setting : {limited, several}) {
    const Values expected = trained(setting, std::nullopt).saved.values;
    for (const ShardStage stage : kStages)
      EXPECT_LT(largest_difference(trained(setting, stage).saved.values, expected), 1e-4);
  }
  const Values free = trained(setting(), std::nullopt).saved.values;
  EXPECT_GT(largest_difference(trained(limited, std::nullopt).saved.values, free), 1e-3)
      << "a limit that bites";
}

INSTANTIATE_TEST_SUITE_P(Grids, MeshShards,
                         testing::Values(Grid{1, 2, false}, Grid{2, 2, false}, Grid{3, 2, true},
                                         Grid{2, 4, true}, Grid{4, 2, false}));

// Of a rank's E elements (its slices) and C copies: stage 2 4 E + 12 E / C, stage 3 16 E / C, and two
// buckets; at no moment more than two modules besides, where parameters are shared out.
TEST(MeshShardsMemory, IsThatOfTheFormulas) {
  Setting setting{.shape = {.width = 512, .hidden = 1024, .words = 512}, .bucket_bytes = 1U << 20};
  constexpr std::size_t kBuckets = 2U << 20, kBatches = 64U << 10;
  for (const int copies : {2, 4}) {
    setting.copies = copies;
    for (const ShardStage stage : kStages) {
      const Memory memory = trained(setting, stage).memory;
      const std::size_t bytes = 4 * memory.elements, part = bytes / static_cast<std::size_t>(copies);
      const std::size_t formula = stage == ShardStage::gradients ? bytes + 3 * part : 4 * part;
      fmt::print(
          "{} copies of 2 slices, stage {}, {:.1f} MB of slices a rank: {} bytes by the formula, held {} "
          "to {}, most ever {}; two largest modules {}\n",
          copies, static_cast<int>(stage) + 1, static_cast<double>(bytes) / 1e6, formula, memory.least_held,
          memory.most_held, memory.most_ever, memory.two_modules);
      EXPECT_LE(memory.most_held, formula + kBuckets + kBatches);
      EXPECT_GE(memory.least_held, formula) << "something is not counted";
      // A word's activations: some thousand numbers in each block.
      constexpr std::size_t kActivations = 24 * 4 * 2 * (8 * 512 + 6 * 512);
      if (stage == ShardStage::parameters) {
        EXPECT_LE(memory.most_ever, formula + kBuckets + kBatches + memory.two_modules + kActivations);
      }
    }
  }
}

}  // namespace
}  // namespace dtrain
