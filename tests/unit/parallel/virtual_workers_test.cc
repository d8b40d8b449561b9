// The same bits for any number of ranks, which are threads here: the tree, sums of buckets over uneven runs,
// and training with batch norm and parameters that some parts do not use.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "collectives/thread_ranks.h"
#include "parallel/forms.h"
#include "parallel/sync/fixed_tree_reducer.h"
#include "parallel/sync/micro_batch_tree.h"
#include "runtime/base/error.h"
#include "runtime/nn/layers.h"
#include "runtime/optim/sgd.h"
#include "tests/support/message_of.h"

namespace dtrain {
namespace {

using testing::HasSubstr;

const Deadline kNever = Deadline::never();
constexpr auto kPatience = std::chrono::seconds(30);

TEST(PartTree, NodesOfAllRanksCoverEveryPartOnceAndFoldIntoOne) {
  for (int parts = 1; parts <= 33; ++parts) {
    for (int ranks = 1; ranks <= parts; ++ranks) {
      std::vector<MicroBatchRange> sums;
      int next = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const MicroBatchRange run = micro_batches_of(parts, rank, ranks);
        EXPECT_EQ(run.first, next) << parts << " parts, " << ranks << " ranks";
        EXPECT_GE(run.count(), 1);
        next = run.end;
        for (const MicroBatchRange& node : nodes_within(parts, run)) {
          EXPECT_TRUE(sums.empty() || sums.back().end == node.first);
          sums.push_back(node);
          while (sums.size() > 1 && are_siblings(parts, sums[sums.size() - 2], sums.back())) {
            sums[sums.size() - 2].end = sums.back().end;
            sums.pop_back();
          }
        }
      }
      ASSERT_EQ(sums.size(), 1U) << parts << " parts, " << ranks << " ranks";
      EXPECT_EQ(sums[0], (MicroBatchRange{0, parts}));
    }
  }
  EXPECT_EQ(nodes_within(8, {2, 5}), (std::vector<MicroBatchRange>{{2, 4}, {4, 5}}));
  EXPECT_TRUE(are_siblings(5, {0, 4}, {4, 5}));
  EXPECT_FALSE(are_siblings(8, {2, 4}, {4, 6}));
}

/// Convolution, batch norm and a branch that only some parts take: their gradient of it is zero.
class Net final : public Module {
 public:
  explicit Net(const std::shared_ptr<Device>& device) : Net(Generator(5), device) {}
  Tensor forward(const Tensor& x) override {
    const Tensor h = relu((*norm_)((*conv_)(x))).reshape({x.size(0), 4 * 6 * 6});
    const Tensor y = (*out_)(h);
    return uses_extra ? add(y, (*extra_)(h)) : y;
  }
  bool uses_extra = false;

 private:
  Net(Generator generator, const std::shared_ptr<Device>& device)
      : conv_(add_module("conv", std::make_shared<Conv2d>(2, 4, 3, generator, device))),
        norm_(add_module("norm", std::make_shared<BatchNorm2d>(4, device))),
        out_(add_module("out", std::make_shared<Linear>(4 * 6 * 6, 7, generator, device))),
        extra_(add_module("extra", std::make_shared<Linear>(4 * 6 * 6, 7, generator, device))) {}

  std::shared_ptr<Conv2d> conv_;
  std::shared_ptr<BatchNorm2d> norm_;
  std::shared_ptr<Linear> out_, extra_;
};

/// Batches that depend on step and part alone.
class PartsOfStep final : public MicroBatches {
 public:
  PartsOfStep(int step, DataShare share, Module& network, std::shared_ptr<Device> device)
      : step_(step), share_(share), network_(dynamic_cast<Net*>(&network)), device_(std::move(device)) {}
  std::size_t count() const noexcept override { return static_cast<std::size_t>(share_.parts); }
  Tensors inputs(std::size_t i) override {
    const int part = share_.rank + static_cast<int>(i);
    if (network_ != nullptr) network_->uses_extra = part % 3 == 1;
    Generator generator(100U * static_cast<unsigned>(step_) + static_cast<unsigned>(part));
    return {Tensor::randn({3, 2, 8, 8}, generator, device_)};
  }
  Tensor loss(std::size_t, const Tensors& outputs) override { return mean(mul(outputs[0], outputs[0])); }
  double weight(std::size_t) const override { return 1.0; }
  void losses_done() override {}
  void gradients_done() override {}

 private:
  int step_;
  DataShare share_;
  Net* network_;
  std::shared_ptr<Device> device_;
};

ModelFactory parts_of_training() {
  GradientLimits limits;
  limits.norm = 1.0;
  return {.build = [](const std::shared_ptr<Device>& device) { return std::make_unique<Net>(device); },
          .make_optimizer = [](const NamedTensors& parameters) -> std::unique_ptr<Optimizer> {
            return std::make_unique<Sgd>(parameters, SgdOptions{.lr = 0.1, .momentum = 0.9});
          },
          .limits = limits};
}

using Values = std::vector<std::vector<double>>;  ///< of parameters, then of buffers

Values state_of(const Module& network) {
  NamedTensors tensors = network.named_parameters();
  for (auto& buffer : network.named_buffers()) tensors.push_back(std::move(buffer));
  Values values;
  for (const auto& [name, tensor] : tensors)
    values.push_back(tensor.detach().to(DType::f64).to_vector<double>());
  return values;
}

/// State after `steps` steps with ranks as threads; all must agree.
Values train(int ranks, int parts, std::size_t bucket_bytes, int steps = 2) {
  NullLog log;
  std::vector<Values> all(static_cast<std::size_t>(ranks));
  run_thread_ranks(ranks, {}, log, [&](Communicator& communicator) {
    const auto device = make_device("cpu");
    StepClock clock;
    const auto model = make_virtual_workers({communicator, device, kPatience, {&clock}}, parts,
                                            {.first_bytes = bucket_bytes, .cap_bytes = bucket_bytes});
    Strategy& strategy = *model;
    strategy.prepare(parts_of_training(), kNever);
    strategy.begin(kNever);
    for (int step = 0; step < steps; ++step) {
      PartsOfStep passes(step, strategy.share(), strategy.module(), device);
      strategy.step(passes, Exchange::all);
      if (step == 0) strategy.exchange_alone(kNever);
    }
    strategy.sync_state(kNever);
    all[static_cast<std::size_t>(communicator.rank())] = state_of(strategy.module());
    communicator.barrier("end")->wait(kNever);
  });
  for (const Values& one : all) EXPECT_EQ(one, all[0]) << "ranks differ";
  return all[0];
}

TEST(VirtualWorkers, AnyNumberOfRanksGivesTheSameBits) {
  const Values eight = train(1, 8, 1U << 20);
  for (const int ranks : {2, 3, 4, 5, 8}) EXPECT_EQ(train(ranks, 8, 1U << 20), eight) << ranks << " ranks";
  EXPECT_EQ(train(3, 8, 512), eight) << "whatever the buckets";
  const Values five = train(1, 5, 1U << 20);
  for (const int ranks : {2, 4}) EXPECT_EQ(train(ranks, 5, 1U << 20), five) << ranks << " ranks, 5 parts";
}

/// One process that runs the same parts and adds their gradients up in turn.
TEST(VirtualWorkers, AreTheMeanOverTheParts) {
  NullLog log;
  Values plain;
  std::size_t count = 0;  // of parameters; running statistics are the first part's
  run_thread_ranks(1, {}, log, [&](Communicator& communicator) {
    const auto device = make_device("cpu");
    StepClock clock;
    const auto model = make_data_parallel({communicator, device, kPatience, {&clock}});
    Strategy& strategy = *model;
    strategy.prepare(parts_of_training(), kNever);
    strategy.begin(kNever);
    for (int step = 0; step < 2; ++step) {
      PartsOfStep inner(step, {0, 8, 8}, strategy.module(), device);
      struct Eighth final : MicroBatches {
        explicit Eighth(MicroBatches& passes) : of(passes) {}
        std::size_t count() const noexcept override { return of.count(); }
        Tensors inputs(std::size_t i) override { return of.inputs(i); }
        Tensor loss(std::size_t i, const Tensors& outputs) override { return of.loss(i, outputs); }
        double weight(std::size_t) const override { return 1.0 / 8; }
        void losses_done() override {}
        void gradients_done() override {}
        MicroBatches& of;
      } passes(inner);
      strategy.step(passes, Exchange::all);
    }
    plain = state_of(strategy.module());
    count = strategy.module().named_parameters().size();
  });
  const Values parts = train(2, 8, 1U << 20);
  double largest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t k = 0; k < plain[i].size(); ++k)
      largest = std::max(largest, std::abs(parts[i][k] - plain[i][k]));
  }
  EXPECT_LT(largest, 1e-5);
  EXPECT_EQ(count, 8U);
}

TEST(VirtualWorkers, SendWhatAnAllReduceSends) {
  NullLog log;
  run_thread_ranks(4, {}, log, [&](Communicator& communicator) {
    FixedTreeReducer reducer(communicator, make_device("cpu"), {{"w", 1 << 16}}, 8);
    for (int part = 0; part < 2; ++part) {
      reducer.begin_pass();
      reducer.end_pass();
    }
    reducer.finish(kNever);
    // Sent and received: 2 · 2 (W - 1) / W of the bytes.
    EXPECT_EQ(reducer.bytes(), 2U * 2 * 3 * (4U << 16) / 4);
  });
}

// Sums stay where they were formed, in memory that the next step uses again.
TEST(VirtualWorkers, KeepASumForEachLevelOfTheTree) {
  NullLog log;
  constexpr std::size_t kCount = 50'000;
  run_thread_ranks(1, {}, log, [&](Communicator& communicator) {
    const auto device = make_device("cpu");
    FixedTreeReducer reducer(communicator, device, {{"w", kCount}}, 8);
    for (int step = 0; step < 3; ++step) {
      for (int part = 0; part < 8; ++part) {
        reducer.begin_pass();
        device->kernels().fill(reducer.gradient(0), part + step);
        reducer.mark_ready(0);
        reducer.end_pass();
      }
      reducer.finish(kNever);
      const auto* const sum = static_cast<const float*>(reducer.gradient(0).data);
      for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(sum[i], 28 + 8 * step) << "element " << i;
    }
    EXPECT_LT(device->peak_allocated_bytes(), 4 * (4 * kCount + 4096)) << "1 + log2 8 sums";
  });
}

TEST(VirtualWorkers, NeedAPartForEachRank) {
  EXPECT_THAT(test::message_of([] { train(3, 2, 1U << 20); }),
              HasSubstr("expected at least one micro-batch for each of 3 ranks, got 2"));
}

}  // namespace
}  // namespace dtrain
