// Sharded data parallelism, with ranks as threads: the layout, the bits of data parallelism, the bytes held
// against the formulas, and state that any number of ranks takes over.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <mutex>

#include "collectives/thread_ranks.h"
#include "parallel/data/data_parallel_strategy.h"
#include "parallel/data/sharded/sharded_strategy.h"
#include "runtime/base/error.h"
#include "runtime/nn/layers.h"
#include "runtime/optim/adamw.h"
#include "runtime/optim/parameter_groups.h"
#include "runtime/optim/sgd.h"
#include "tests/support/message_of.h"

namespace dtrain {
namespace {

using testing::HasSubstr;

const Deadline kNever = Deadline::never();
constexpr auto kPatience = std::chrono::seconds(30);

TEST(ShardLayout, RangesCoverEveryElementOnce) {
  for (const std::size_t count : {0, 1, 3, 7, 64, 1000, 4096, 100'003}) {
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

/// Linear layers with relu between them.
class Layers final : public Module {
 public:
  Layers(std::vector<std::int64_t> widths, const std::shared_ptr<Device>& device) {
    Generator generator(11);
    for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
      layers_.push_back(add_module(fmt::format("fc{}", i),
                                   std::make_shared<Linear>(widths[i], widths[i + 1], generator, device)));
    }
  }
  Tensor forward(const Tensor& x) override {
    Tensor h = x;
    for (std::size_t i = 0; i < layers_.size(); ++i) h = (*layers_[i])(i == 0 ? h : relu(h));
    return h;
  }

 private:
  std::vector<std::shared_ptr<Linear>> layers_;
};

/// Batches of numbers that depend on step, rank and pass alone.
class Numbers final : public Passes {
 public:
  Numbers(int step, DataShare share, std::size_t passes, std::int64_t width, std::shared_ptr<Device> device)
      : step_(step), share_(share), passes_(passes), width_(width), device_(std::move(device)) {}
  std::size_t count() const noexcept override { return passes_; }
  Tensors inputs(std::size_t i) override {
    Generator generator(1000U * static_cast<unsigned>(step_) + 10U * static_cast<unsigned>(share_.rank) +
                        static_cast<unsigned>(i));
    return {Tensor::randn({4, width_}, generator, device_)};
  }
  Tensor loss(std::size_t, const Tensors& outputs) override {
    const Tensor loss = mean(mul(outputs[0], outputs[0]));
    last_loss = loss.item();
    return loss;
  }
  double weight(std::size_t) const override { return 1.0 / static_cast<double>(passes_); }
  void losses_done() override {}
  void gradients_done() override { ++done; }

  double last_loss = 0;
  int done = 0;

 private:
  int step_;
  DataShare share_;
  std::size_t passes_;
  std::int64_t width_;
  std::shared_ptr<Device> device_;
};

struct Setting {
  std::vector<std::int64_t> widths = {20, 130, 37, 5};
  std::string optimizer = "adamw";
  std::size_t passes = 1;
  GradientLimits limits = {};
  std::size_t bucket_bytes = 2048;
};

TrainingParts parts_of(const Setting& setting) {
  return {.build =
              [setting](const std::shared_ptr<Device>& device) {
                return std::make_unique<Layers>(setting.widths, device);
              },
          .make_optimizer = [setting](const NamedTensors& parameters) -> std::unique_ptr<Optimizer> {
            if (setting.optimizer == "sgd")
              return std::make_unique<Sgd>(parameters, SgdOptions{.lr = 0.05, .momentum = 0.9});
            return std::make_unique<AdamW>(parameters, AdamWOptions{.lr = 0.01});
          },
          .limits = setting.limits};
}

std::vector<std::vector<float>> values_of(const NamedTensors& tensors) {
  std::vector<std::vector<float>> values;
  for (const auto& [name, tensor] : tensors) values.push_back(tensor.to_vector<float>());
  return values;
}

/// Weights after `steps` steps, on every rank; all ranks must agree.
std::vector<std::vector<float>> train(int ranks, const Setting& setting, std::optional<ShardStage> stage,
                                      int steps = 4) {
  NullLog log;
  std::vector<std::vector<std::vector<float>>> all(static_cast<std::size_t>(ranks));
  run_thread_ranks(ranks, {}, log, [&](Communicator& communicator) {
    const auto device = make_device("cpu");
    StepClock clock;
    const StrategyContext context{communicator, device, kPatience, {&clock}};
    std::unique_ptr<Strategy> strategy;
    if (stage) {
      strategy = std::make_unique<ShardedStrategy>(
          context, ShardOptions{.stage = *stage, .bucket_bytes = setting.bucket_bytes});
    } else {
      strategy = std::make_unique<DataParallelStrategy>(context);
    }
    strategy->prepare(parts_of(setting), kNever);
    strategy->begin(kNever);
    for (int step = 0; step < steps; ++step) {
      Numbers passes(step, strategy->share(), setting.passes, setting.widths.front(), device);
      strategy->step(passes);
      EXPECT_EQ(passes.done, 1);
    }
    all[static_cast<std::size_t>(communicator.rank())] = values_of(strategy->module().state_dict());
    communicator.barrier("end")->wait(kNever);
  });
  for (const auto& one : all) EXPECT_EQ(one, all[0]) << "ranks differ";
  return all[0];
}

double largest_difference(const std::vector<std::vector<float>>& a,
                          const std::vector<std::vector<float>>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t k = 0; k < a[i].size(); ++k)
      largest = std::max(largest, std::abs(static_cast<double>(a[i][k]) - b[i][k]));
  }
  return largest;
}

class Sharded : public testing::TestWithParam<int> {};

TEST_P(Sharded, GivesTheBitsOfDataParallelism) {
  for (const char* optimizer : {"sgd", "adamw"}) {
    const Setting setting{.optimizer = optimizer};
    const auto expected = train(GetParam(), setting, std::nullopt);
    EXPECT_EQ(train(GetParam(), setting, ShardStage::optimizer), expected) << optimizer;
    EXPECT_EQ(train(GetParam(), setting, ShardStage::gradients), expected) << optimizer;
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
  EXPECT_LT(largest_difference(train(GetParam(), setting, ShardStage::gradients), expected), 1e-4);
}

TEST_P(Sharded, LimitsTheNormOfAllGradientsTogether) {
  Setting setting{.optimizer = "sgd"};
  setting.limits.norm = 0.05;
  const auto expected = train(GetParam(), setting, std::nullopt);
  EXPECT_LT(largest_difference(train(GetParam(), setting, ShardStage::gradients), expected), 1e-6);
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
  const Setting setting{.widths = {256, 1024, 1024, 1024, 1024, 256}, .bucket_bytes = 1U << 20};
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
        ShardedStrategy strategy({communicator, device, kPatience, {&clock}},
                                 {.stage = stage, .bucket_bytes = setting.bucket_bytes});
        strategy.prepare(parts_of(setting), kNever);
        strategy.begin(kNever);
        double held = 0;
        for (int step = 0; step < 2; ++step) {
          Numbers inner(step, strategy.share(), 1, setting.widths.front(), device);
          // Between backward and the update everything is there that is ever kept.
          struct Counted final : Passes {
            Counted(Passes& passes, Device& on, double& bytes) : inner(passes), device(on), held(bytes) {}
            std::size_t count() const noexcept override { return inner.count(); }
            Tensors inputs(std::size_t i) override { return inner.inputs(i); }
            Tensor loss(std::size_t i, const Tensors& outputs) override { return inner.loss(i, outputs); }
            double weight(std::size_t i) const override { return inner.weight(i); }
            void losses_done() override {}
            void gradients_done() override { held = static_cast<double>(device.allocated_bytes()); }
            Passes& inner;
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
      ShardedStrategy strategy({communicator, device, kPatience, {&clock}}, {.bucket_bytes = 2048});
      strategy.prepare(parts_of(setting), kNever);
      strategy.begin(kNever);
      for (int step = 0; step < 2; ++step) {
        Numbers passes(step, strategy.share(), 1, 20, device);
        strategy.step(passes, Exchange::all);
      }
      const StateParts parts = strategy.save();
      const std::lock_guard lock(mutex);
      for (const auto* tensors : {&parts.model, &parts.optimizer}) {
        for (const SavedPart& part : *tensors) {
          const TensorPart where = part.part.value_or(TensorPart::whole(part.tensor.shape()));
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
