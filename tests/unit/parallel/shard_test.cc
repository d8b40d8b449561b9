// Sharded data parallelism, with ranks as threads: the layout, the bits of data parallelism, the bytes held
// against the formulas, and state that any number of ranks takes over.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <mutex>

#include "runtime/base/error.h"
#include "tests/support/message_of.h"
#include "tests/unit/parallel/sharded_fixture.h"

namespace dtrain {
namespace {

using testing::HasSubstr;

TEST(ShardLayout, RangesCoverEveryElementOnce) {
  for (const std::size_t count : {0, 1, 3, 7, 9, 64, 1000, 4096, 100'003}) {
    for (const int ranks : {1, 2, 3, 4, 8}) {
      std::size_t next = 0, least = count + 1, most = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const ShardRange range = owned_range(count, rank, ranks);
        EXPECT_EQ(range.first, next);
        next += range.count;
        least = std::min(least, range.count), most = std::max(most, range.count);
      }
      EXPECT_EQ(next, count);
      EXPECT_LE(most - least, 32U) << count << " elements, " << ranks << " ranks";
      const std::size_t length = equal_length(count, ranks);
      for (int rank = 0; rank < ranks; ++rank) {
        const ShardRange range = owned_range(count, rank, ranks, ShardCut::equal);
        const std::size_t first = std::min(count, static_cast<std::size_t>(rank) * length);
        EXPECT_EQ(range.first, first);
        EXPECT_EQ(range.count, std::min(length, count - first));
      }
      EXPECT_GE(length * static_cast<std::size_t>(ranks), count);
      EXPECT_LT(length, count / static_cast<std::size_t>(ranks) + 17);
    }
  }
}

TEST(ShardLayout, BucketsAreBoundedAndHoldEveryOwnedElementOnce) {
  const std::vector<GradientSlot> slots = {{"a", 100'000}, {"b", 10}, {"c", 5'000}, {"d", 3, DType::bf16}};
  for (const int ranks : {1, 3, 8}) {
    const auto buckets = lay_out_shards(slots, reverse_order(slots.size()), ranks, 8192);
    std::vector<std::size_t> seen(slots.size());
    for (const ShardBucket& bucket : buckets) {
      EXPECT_LE(bucket.bytes(ranks), 8192U);
      std::size_t offset = 0;
      for (const ShardCell& cell : bucket.cells) {
        EXPECT_EQ(cell.offset, offset);
        EXPECT_EQ(cell.first, seen[cell.slot]) << "in order";
        EXPECT_EQ(slots[cell.slot].dtype, bucket.dtype);
        offset += cell.count, seen[cell.slot] += cell.count;
      }
      EXPECT_EQ(bucket.part, offset);
    }
    for (std::size_t i = 0; i < slots.size(); ++i) {
      for (int rank = 0; rank < ranks; ++rank)
        EXPECT_GE(seen[i], owned_range(slots[i].count, rank, ranks).count);
    }
  }
}

class Sharded : public testing::TestWithParam<int> {};

TEST_P(Sharded, GivesTheBitsOfDataParallelism) {
  for (const char* optimizer : {"sgd", "adamw"}) {
    const Setting setting{.optimizer = optimizer};
    const auto expected = train(GetParam(), setting, std::nullopt);
    EXPECT_EQ(train(GetParam(), setting, ShardStage::optimizer), expected) << optimizer;
    EXPECT_EQ(train(GetParam(), setting, ShardStage::gradients), expected) << optimizer;
    EXPECT_EQ(train(GetParam(), setting, ShardStage::parameters), expected) << optimizer;
    Setting large = setting;
    large.bucket_bytes = 1U << 20;
    EXPECT_EQ(train(GetParam(), large, ShardStage::gradients), expected) << "whatever the buckets";
  }
}

TEST_P(Sharded, Accumulates) {
  const Setting setting{.passes = 3};
  const auto expected = train(GetParam(), setting, std::nullopt);
  EXPECT_EQ(train(GetParam(), setting, ShardStage::optimizer), expected);
  // Each pass is summed over the ranks before the passes are: another order.
  for (const ShardStage stage : {ShardStage::gradients, ShardStage::parameters})
    EXPECT_LT(largest_difference(train(GetParam(), setting, stage), expected), 1e-4);
}

TEST_P(Sharded, LimitsTheNormOfAllGradientsTogether) {
  Setting setting{.optimizer = "sgd"};
  setting.limits.norm = 0.05;
  const auto expected = train(GetParam(), setting, std::nullopt);
  for (const ShardStage stage : {ShardStage::gradients, ShardStage::parameters})
    EXPECT_LT(largest_difference(train(GetParam(), setting, stage), expected), 1e-6);
  Setting free = setting;
  free.limits = {};
  EXPECT_GT(largest_difference(train(GetParam(), free, std::nullopt), expected), 1e-3)
      << "a limit that bites";
  setting.limits = {};
  setting.limits.value = 1e-3;
  EXPECT_EQ(train(GetParam(), setting, ShardStage::optimizer), train(GetParam(), setting, std::nullopt));
}

INSTANTIATE_TEST_SUITE_P(Worlds, Sharded, testing::Values(1, 2, 3, 4, 8));

// Facts: DDP 16 P bytes, stage 1 8 P + 8 P / W, stage 2 4 P + 12 P / W, plus two buckets.
TEST(ShardedMemory, IsThatOfTheFormulas) {
  const Setting setting{.widths = large_widths(), .bucket_bytes = 1U << 20};
  const double slack =
      2.0 * (1U << 20) + 64 * 1024;  // two buckets; batches and allocator steps are counted as asked for
  for (const int ranks : {2, 4, 8}) {
    for (const ShardStage stage : {ShardStage::optimizer, ShardStage::gradients}) {
      NullLog log;
      std::mutex mutex;
      double most_held = 0, parameters = 0;
      run_thread_ranks(ranks, {}, log, [&](Communicator& communicator) {
        const auto device = make_device("cpu");
        StepClock clock;
        const auto model = make_sharded({communicator, device, kPatience, {&clock}},
                                        {.stage = stage, .bucket_bytes = setting.bucket_bytes});
        Strategy& strategy = *model;
        strategy.prepare(factory_of(setting), kNever);
        strategy.begin(kNever);
        double held = 0;
        for (int step = 0; step < 2; ++step) {
          Numbers inner(step, strategy.share(), 1, setting.widths.front(), device);
          // Between backward and the update everything is there that is ever kept.
          struct Counted final : MicroBatches {
            Counted(MicroBatches& passes, Device& on, double& bytes)
                : inner(passes), device(on), held(bytes) {}
            std::size_t count() const noexcept override { return inner.count(); }
            Tensors inputs(std::size_t i) override { return inner.inputs(i); }
            Tensor loss(std::size_t i, const Tensors& outputs) override { return inner.loss(i, outputs); }
            double weight(std::size_t i) const override { return inner.weight(i); }
            void losses_done() override {}
            void gradients_done() override { held = static_cast<double>(device.allocated_bytes()); }
            MicroBatches& inner;
            Device& device;
            double& held;
          } passes(inner, *device, held);
          strategy.step(passes, Exchange::all);
        }
        const std::lock_guard lock(mutex);
        parameters = static_cast<double>(strategy.module().parameter_count());
        most_held = std::max(most_held, held);
      });
      const double formula = stage == ShardStage::optimizer ? 8 * parameters + 8 * parameters / ranks
                                                            : 4 * parameters + 12 * parameters / ranks;
      show_memory(stage == ShardStage::optimizer ? "optimizer" : "gradients", ranks, parameters, formula,
                  most_held);
      EXPECT_LE(most_held, formula + slack) << ranks << " ranks, stage " << static_cast<int>(stage) + 1;
      EXPECT_GE(most_held, formula) << "something is not counted";
    }
  }
}

// Together the ranks save everything, and each element once.
TEST(ShardedState, IsSavedOnceByAllRanksTogether) {
  const Setting setting;
  NullLog log;
  for (const int ranks : {1, 3, 4}) {
    std::mutex mutex;
    std::map<std::string, std::vector<float>> saved;
    std::map<std::string, int> counted;
    run_thread_ranks(ranks, {}, log, [&](Communicator& communicator) {
      const auto device = make_device("cpu");
      StepClock clock;
      const auto model = make_sharded({communicator, device, kPatience, {&clock}}, {.bucket_bytes = 2048});
      Strategy& strategy = *model;
      strategy.prepare(factory_of(setting), kNever);
      strategy.begin(kNever);
      for (int step = 0; step < 2; ++step) {
        Numbers passes(step, strategy.share(), 1, 20, device);
        strategy.step(passes, Exchange::all);
      }
      const RankState parts = strategy.save();
      const std::lock_guard lock(mutex);
      for (const auto* tensors : {&parts.model, &parts.optimizer}) {
        for (const NamedShard& part : *tensors) {
          const TensorShard where = part.part.value_or(TensorShard::whole(part.tensor.shape()));
          EXPECT_EQ(part.tensor.shape(), where.held_shape());
          auto& whole = saved[part.name];
          whole.resize(static_cast<std::size_t>(where.shape.product()));
          const auto values = part.tensor.to_vector<float>();
          std::copy(values.begin(), values.end(), whole.begin() + where.first);
          counted[part.name] += static_cast<int>(where.count);
        }
      }
    });
    for (const auto& [name, values] : saved)
      EXPECT_EQ(counted[name], static_cast<int>(values.size())) << name << ": each element once";
    EXPECT_TRUE(saved.contains("fc1.weight.exp_avg_sq") && saved.contains("fc2.bias.step"));
    EXPECT_EQ(saved["fc2.bias.step"], std::vector<float>{2});
  }
}

TEST(ShardedErrors, AreNamed) {
  NullLog log;
  EXPECT_THAT(test::message_of([&] {
                train(4, {.widths = {1, 1}}, ShardStage::optimizer);
              }),
              HasSubstr("expected a network with an element for each of 4 ranks, got 2 elements"));
}

}  // namespace
}  // namespace dtrain
