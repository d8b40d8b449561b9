// What ranks that hold different parts of a network have to say to each other beside activations: whether
// float16 overflowed anywhere, and the statistics of batch norm among the copies of a stage.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <optional>

#include "collectives/thread_ranks.h"
#include "parallel/forms.h"
#include "parallel/mesh.h"
#include "parallel/sync/batch_peers.h"
#include "runtime/autograd/ops/joining.h"
#include "runtime/nn/layers.h"
#include "runtime/optim/sgd.h"
#include "tests/unit/parallel/corrupted_micro_batches.h"
#include "tests/unit/parallel/layers.h"
#include "tests/unit/parallel/mesh_ranks.h"

namespace dtrain {
namespace {

using test::ChainBatches;
using test::CorruptedMicroBatches;
using test::Layers;
using test::MakeStrategy;
using test::run_mesh_ranks;
using testing::Each;

const Deadline kNever = Deadline::never();
constexpr auto kPatience = std::chrono::seconds(30);
constexpr int kSteps = 4, kBadStep = 1;
constexpr std::size_t kMicroBatches = 4;

using State = std::map<std::string, std::vector<float>>;

ModelFactory factory_of(GradScaler* scaler) {
  return {.build = [](const std::shared_ptr<Device>& device) -> std::unique_ptr<Module> {
            return std::make_unique<Layers>(4, device);
          },
          .make_optimizer = [](const NamedTensors& parameters) -> std::unique_ptr<Optimizer> {
            return std::make_unique<Sgd>(parameters, SgdOptions{.lr = 0.2, .momentum = 0.9});
          },
          .scaler = scaler,
          .limits = {.norm = 0.01, .value = {}}};
}

struct Trained {
  State state;
  std::vector<double> scales, skipped;  ///< of each rank
};

/// `bad_rank` overflows in one step; of all the others' gradients nothing is wrong.
Trained trained(const std::vector<MeshAxis>& axes, int ranks, int bad_rank, const MakeStrategy& make) {
  std::mutex mutex;
  Trained trained;
  run_mesh_ranks(axes, ranks, make,
                 [&](Strategy& strategy, GradScaler& scaler, Communicator& communicator,
                     const std::shared_ptr<Device>& device) {
                   strategy.prepare(factory_of(&scaler), kNever);
                   strategy.begin(kNever);
                   for (int step = 0; step < kSteps; ++step) {
                     ChainBatches passes(step, strategy.share(), kMicroBatches, device);
                     CorruptedMicroBatches corrupted(passes, strategy,
                                                     communicator.rank() == bad_rank && step == kBadStep);
                     strategy.step(corrupted, Exchange::all);
                   }
                   State state;  // a look at a parameter that is in ranges waits for the others
                   for (const auto& [name, tensor] : strategy.module().state_dict())
                     state[name] = tensor.to_vector<float>();
                   const std::lock_guard lock(mutex);
                   trained.scales.push_back(scaler.scale());
                   trained.skipped.push_back(static_cast<double>(scaler.skipped()));
                   trained.state.merge(state);
                 });
  return trained;
}

std::unique_ptr<ParallelModel> data_parallel(const StrategyContext& context, const Mesh& mesh,
                                             const PipelineLinks* /*links*/) {
  return make_data_parallel(
      StrategyContext{mesh.group("dp"), context.device, context.patience, context.timer});
}

std::unique_ptr<ParallelModel> pipeline(const StrategyContext& context, const Mesh& mesh,
                                        const PipelineLinks* links) {
  return make_pipeline(context, PipelineGroups{*links, mesh.group("dp")}, PipelineOptions{});
}

template <ShardStage stage>
std::unique_ptr<ParallelModel> ranged_pipeline(const StrategyContext& context, const Mesh& mesh,
                                               const PipelineLinks* links) {
  return make_pipeline(context, PipelineGroups{*links, mesh.group("dp")},
                       PipelineOptions{.shard = ShardOptions{.stage = stage}});
}

template <ShardStage stage>
std::unique_ptr<ParallelModel> sharded(const StrategyContext& context, const Mesh& mesh,
                                       const PipelineLinks* /*links*/) {
  return make_sharded(StrategyContext{mesh.group("dp"), context.device, context.patience, context.timer},
                      ShardOptions{.stage = stage});
}

void expect_one_step_skipped(const Trained& got, const State& expected) {
  EXPECT_THAT(got.scales, Each(512.0));
  EXPECT_THAT(got.skipped, Each(1.0));
  EXPECT_EQ(got.state, expected);
}

TEST(Overflow, OfOneStageSkipsTheStepOnAll) {
  const State expected = trained({{"dp", 1}}, 1, 0, data_parallel).state;
  EXPECT_NE(trained({{"dp", 1}}, 1, -1, data_parallel).state, expected);
  for (const int bad_rank : {0, 1, 2})
    expect_one_step_skipped(trained({{"dp", 1}, {"pp", 3}}, 3, bad_rank, pipeline), expected);
  const Trained clean = trained({{"dp", 1}, {"pp", 3}}, 3, -1, pipeline);
  EXPECT_THAT(clean.scales, Each(1024.0));
  EXPECT_EQ(clean.state, trained({{"dp", 1}}, 1, -1, data_parallel).state);
}

// A rank of one pipeline, whose other stages and copies have good gradients.
TEST(Overflow, OfOneCopySkipsTheStepOnAll) {
  for (const MakeStrategy& make :
       {MakeStrategy(pipeline), MakeStrategy(ranged_pipeline<ShardStage::gradients>),
        MakeStrategy(ranged_pipeline<ShardStage::parameters>)}) {
    const Trained got = trained({{"dp", 2}, {"pp", 2}}, 4, 3, make);
    EXPECT_THAT(got.scales, Each(512.0));
    EXPECT_THAT(got.skipped, Each(1.0));
  }
}

// The layers are whole here: what is split does not matter to who overflows.
TEST(Overflow, OfOneSliceSkipsTheStepOnAll) {
  const State expected = trained({{"dp", 1}}, 1, 0, data_parallel).state;
  using Make = decltype(&data_parallel);
  for (const Make inner :
       {Make(data_parallel), Make(sharded<ShardStage::gradients>), Make(sharded<ShardStage::parameters>)}) {
    for (const int bad_rank : {0, 1}) {
      expect_one_step_skipped(
          trained({{"dp", 1}, {"tp", 2}}, 2, bad_rank,
                  [&](const StrategyContext& context, const Mesh& mesh, const PipelineLinks* links) {
                    return make_tensor_parallel(context, RankGroup{mesh.group("tp"), kPatience},
                                                inner(context, mesh, links));
                  }),
          expected);
    }
  }
  for (const int bad_rank : {0, 1, 2, 3}) {
    expect_one_step_skipped(
        trained(
            {{"dp", 1}, {"pp", 2}, {"tp", 2}}, 4, bad_rank,
            [](const StrategyContext& context, const Mesh& mesh, const PipelineLinks* links) {
              auto stages =
                  make_pipeline(context, PipelineGroups{*links, mesh.group("dp")}, PipelineOptions{});
              return make_tensor_parallel(context, RankGroup{mesh.group("tp"), kPatience}, std::move(stages));
            }),
        expected);
  }
}

/// Convolutions with a batch norm behind each.
class Norms final : public Module, public Chained {
 public:
  explicit Norms(const std::shared_ptr<Device>& device) {
    Generator generator(4);
    for (int i = 0; i < 3; ++i) {
      layers_.push_back(
          add_module(fmt::format("fc{}", i), std::make_shared<Linear>(8, 8, generator, device)));
      norms_.push_back(add_module(fmt::format("bn{}", i), std::make_shared<BatchNorm2d>(2, device)));
    }
  }
  Tensor forward(const Tensor& x) override { return through(chain(), x); }
  std::vector<LayerUnit> chain() const override {
    std::vector<LayerUnit> chain;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const auto layer = layers_[i];
      const auto norm = norms_[i];
      chain.push_back(
          {{{fmt::format("fc{}", i), layer}, {fmt::format("bn{}", i), norm}}, [layer, norm](const Tensor& x) {
             const Tensor y = (*layer)(x);
             return tanh((*norm)(y.reshape({y.size(0), 2, 2, 2})).reshape({y.size(0), 8}));
           }});
    }
    return chain;
  }

 private:
  std::vector<std::shared_ptr<Linear>> layers_;
  std::vector<std::shared_ptr<BatchNorm2d>> norms_;
};

/// The passes of two shares, one behind the other.
class WholePasses final : public MicroBatches {
 public:
  WholePasses(int step, const std::shared_ptr<Device>& device)
      : first_(step, {0, 2}, kMicroBatches, device), second_(step, {1, 2}, kMicroBatches, device) {}
  std::size_t count() const noexcept override { return kMicroBatches; }
  Tensors inputs(std::size_t i) override { return {cat({first_.inputs(i)[0], second_.inputs(i)[0]}, 0)}; }
  Tensor loss(std::size_t i, const Tensors& outputs) override { return first_.loss(i, outputs); }
  double weight(std::size_t i) const override { return first_.weight(i); }
  void losses_done() override {}
  void gradients_done() override {}

 private:
  ChainBatches first_, second_;
};

State with_norms(int copies, int stages) {
  NullLog log;
  std::mutex mutex;
  State state;
  run_thread_ranks(copies * stages, {}, log, [&](Communicator& communicator) {
    const auto device = make_device("cpu");
    StepClock clock;
    const Mesh mesh(communicator, {{"dp", copies}, {"pp", stages}}, kNever);
    const PipelineLinks links(mesh, PipelineShape::line, kNever);
    const auto model =
        make_pipeline({communicator, device, kPatience, {&clock}}, {links, mesh.group("dp")}, {});
    Strategy& strategy = *model;
    ModelFactory factory = factory_of(nullptr);
    factory.build = [&](const std::shared_ptr<Device>& where) -> std::unique_ptr<Module> {
      auto network = std::make_unique<Norms>(where);
      if (copies > 1) synchronize_batch_norms(*network, make_batch_peers(mesh.group("dp"), kPatience));
      return network;
    };
    strategy.prepare(factory, kNever);
    strategy.begin(kNever);
    for (int step = 0; step < kSteps; ++step) {
      ChainBatches shared(step, strategy.share(), kMicroBatches, device);
      WholePasses whole(step, device);
      strategy.step(copies > 1 ? static_cast<MicroBatches&>(shared) : whole, Exchange::all);
    }
    strategy.sync_state(kNever);
    const std::lock_guard lock(mutex);
    for (const NamedShard& part : strategy.save().model) {
      if (is_floating(part.tensor.dtype())) state[part.name] = part.tensor.to_vector<float>();
    }
  });
  return state;
}

TEST(BatchNormOverCopies, TakesTheStatisticsOfAStagesCopies) {
  const State expected = with_norms(1, 1);
  for (const int stages : {1, 3}) {
    const State got = with_norms(2, stages);
    ASSERT_EQ(got.size(), expected.size());
    for (const auto& [name, values] : expected) {
      for (std::size_t i = 0; i < values.size(); ++i)
        EXPECT_NEAR(got.at(name)[i], values[i], 1e-5) << stages << " stages, " << name;
    }
  }
  EXPECT_EQ(with_norms(1, 3), expected) << "one copy has the whole batch";
}

}  // namespace
}  // namespace dtrain
