// Parameters of which each rank keeps a part: whole where something looks, the next module's ahead, never
// more at a time than the two largest modules, and gone afterwards. DTRAIN_SHARD_MEGABYTES=400 for a network
// of that size.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <thread>

#include "runtime/autograd/autocast.h"
#include "runtime/base/error.h"
#include "runtime/tensor/tracking.h"
#include "tests/support/message_of.h"
#include "tests/unit/parallel/sharded_fixture.h"

namespace dtrain {
namespace {

using testing::HasSubstr;

std::size_t bytes_of(const Module& module) { return 4 * static_cast<std::size_t>(module.parameter_count()); }

/// The network of `widths`, sharded over the ranks of `communicator` while it is built.
struct Sharded {
  Sharded(Communicator& communicator, const std::vector<std::int64_t>& widths)
      : device(make_device("cpu")), parameters(communicator, kPatience) {
    const ModuleWatch watch([this](Module& module) { parameters.shard(module); });
    network = std::make_unique<Layers>(widths, device);
  }
  Tensor weight(int layer) const {
    return network->children()[static_cast<std::size_t>(layer)].second->own_parameters()[0].second;
  }

  std::shared_ptr<Device> device;
  FullyShardedParameters parameters;
  std::unique_ptr<Layers> network;
};

TEST(FullyShardedParameters, AreWholeWhereSomethingLooksAtThem) {
  const std::vector<std::int64_t> widths = {30, 40, 50, 7};
  const Layers whole(widths, make_device("cpu"));
  const auto expected = values_of(whole.named_parameters());
  NullLog log;
  for (const int ranks : {1, 2, 3, 4}) {
    run_thread_ranks(ranks, {}, log, [&](Communicator& communicator) {
      Sharded sharded(communicator, widths);
      std::size_t parts = 0;
      for (const auto& parameter : sharded.parameters.parameters())
        parts += parameter.own.shared_storage()->bytes();
      EXPECT_EQ(sharded.device->allocated_bytes(), parts) << "nothing is whole after building";
      EXPECT_LE(parts, bytes_of(whole) / static_cast<std::size_t>(ranks) + 6 * 17 * 4);
      for (int round = 0; round < 2; ++round) {
        const NamedTensors all = sharded.network->named_parameters();
        for (std::size_t i = 0; i < all.size(); ++i) {
          EXPECT_EQ(all[i].second.to_vector<float>(), expected[i]) << all[i].first;
          end_operation();
        }
      }
      EXPECT_LE(sharded.parameters.stats().peak_bytes, sharded.parameters.two_largest_bytes());
      sharded.parameters.reshard();
      EXPECT_EQ(sharded.device->allocated_bytes(), parts);
      communicator.barrier("end")->wait(kNever);
    });
  }
}

TEST(FullyShardedParameters, KeepWhatIsWrittenAndShowItToAllViews) {
  NullLog log;
  run_thread_ranks(3, {}, log, [&](Communicator& communicator) {
    Sharded sharded(communicator, {10, 20, 30});
    Tensor weight = sharded.weight(0);
    const Tensor row = weight.detach().select(0, 3);  // a view from before
    const std::uint64_t version = weight.version();
    {
      const NoGrad no_grad;
      weight.fill(2.5);
    }
    EXPECT_GT(weight.version(), version);
    sharded.parameters.reshard();
    EXPECT_EQ(row.to_vector<float>(), std::vector<float>(10, 2.5F)) << "follows the memory";
    end_operation();
    sharded.weight(1).view();
    end_operation();
    sharded.weight(1).view();
    EXPECT_EQ(weight.to_vector<float>(), std::vector<float>(200, 2.5F));
    communicator.barrier("end")->wait(kNever);
  });
}

TEST(FullyShardedParameters, OfOneOperationStayTogether) {
  NullLog log;
  run_thread_ranks(2, {}, log, [&](Communicator& communicator) {
    Sharded sharded(communicator, {64, 64, 64, 64, 64});
    end_operation();
    const float* const first = static_cast<const float*>(sharded.weight(0).view().data);
    const float before = first[5];
    for (int layer = 1; layer < 4; ++layer) sharded.weight(layer).view();
    EXPECT_EQ(first, sharded.weight(0).view().data) << "nothing was freed within an operation";
    EXPECT_EQ(first[5], before);
    end_operation();
    sharded.weight(1).view();
    communicator.barrier("end")->wait(kNever);
  });
}

TEST(FullyShardedParameters, ComeAheadOnceTheOrderIsKnown) {
  NullLog log;
  run_thread_ranks(2, {}, log, [&](Communicator& communicator) {
    Sharded sharded(communicator, {64, 64, 64, 64, 64});
    const auto forward = [&] {
      sharded.parameters.reshard();
      for (int layer = 0; layer < 4; ++layer) {
        sharded.weight(layer).view();
        end_operation();
      }
    };
    forward();
    EXPECT_EQ(sharded.parameters.stats().prefetched, 0U);
    forward();
    EXPECT_EQ(sharded.parameters.stats().prefetched, 3U);
    EXPECT_EQ(sharded.parameters.stats().gathers, 8U);
    EXPECT_EQ(sharded.parameters.stats().peak_bytes, sharded.parameters.two_largest_bytes());
    communicator.barrier("end")->wait(kNever);
  });
}

TEST(FullyShardedParameters, CopiesInLowPrecisionGoWithThem) {
  NullLog log;
  run_thread_ranks(2, {}, log, [&](Communicator& communicator) {
    Sharded sharded(communicator, {32, 32, 32});
    LowPrecisionWeights weights;
    const std::size_t without = sharded.device->allocated_bytes();
    const Tensor weight = sharded.weight(0);
    const Tensor low = weights.get(weight, DType::bf16);
    EXPECT_TRUE(low.shares_storage(weights.get(weight, DType::bf16))) << "made once";
    const auto values = low.to_vector<float>();
    sharded.parameters.reshard();
    EXPECT_EQ(sharded.device->allocated_bytes(), without);
    EXPECT_EQ(low.to_vector<float>(), values) << "made again from the weight";
    sharded.parameters.reshard();
    {
      const NoGrad no_grad;
      Tensor(weight).fill(3);
    }
    EXPECT_EQ(weights.get(weight, DType::bf16).to_vector<float>(), std::vector<float>(32 * 32, 3));
    communicator.barrier("end")->wait(kNever);
  });
}

TEST(FullyShardedParameters, RefuseWhatCannotWork) {
  NullLog log;
  run_thread_ranks(1, {}, log, [&](Communicator& communicator) {
    Tensor weight;
    {
      Sharded sharded(communicator, {4, 4});
      weight = sharded.weight(0);
      std::string other;
      std::thread([&] { other = test::message_of([&] { weight.view(); }); }).join();
      EXPECT_THAT(other, HasSubstr("one thread"));
    }
    EXPECT_EQ(weight.shape(), (Dims{4, 4})) << "what it is can still be asked";
    EXPECT_THAT(test::message_of([&] { weight.view(); }), HasSubstr("after its memory was released"));
  });
}

/// One of two layers, as the input says.
class Chooses final : public Module {
 public:
  explicit Chooses(const std::shared_ptr<Device>& device) {
    Generator generator(3);
    left_ = add_module("left", std::make_shared<Linear>(24, 24, generator, device));
    right_ = add_module("right", std::make_shared<Linear>(24, 24, generator, device));
  }
  Tensor forward(const Tensor& x) override { return takes_left ? (*left_)(x) : (*right_)(x); }

  bool takes_left = true;

 private:
  std::shared_ptr<Module> left_, right_;
};

// Modules are gathered by all ranks together: who takes another branch hears which one, and what the others
// took.
TEST(FullyShardedParameters, NameTheBranchesThatRanksTook) {
  NullLog log;
  ModelFactory factory = factory_of({});
  factory.build = [](const std::shared_ptr<Device>& device) { return std::make_unique<Chooses>(device); };
  const std::string why = test::message_of([&] {
    run_thread_ranks(2, {}, log, [&](Communicator& communicator) {
      const auto device = make_device("cpu");
      StepClock clock;
      const auto model = make_sharded({communicator, device, kPatience, {&clock}},
                                      {.stage = ShardStage::parameters, .bucket_bytes = 2048});
      model->prepare(factory, kNever);
      model->begin(kNever);
      dynamic_cast<Chooses&>(model->module()).takes_left = communicator.rank() == 0;
      Numbers passes(0, model->share(), 1, 24, device);
      model->step(passes, Exchange::all);
    });
  });
  EXPECT_THAT(why, HasSubstr("ranks made different calls"));
  EXPECT_THAT(why, HasSubstr("shards of left.weight"));
  EXPECT_THAT(why, HasSubstr("shards of right.weight"));
}

/// Another layer's weight under a name of its own.
class Reuses final : public Module {
 public:
  explicit Reuses(const Tensor& weight) : weight_(add_parameter("weight", weight)) {}
  Tensor forward(const Tensor& x) override { return linear(x, weight_, Tensor()); }

 private:
  Tensor weight_;
};

class Tied final : public Module {
 public:
  explicit Tied(const std::shared_ptr<Device>& device) {
    Generator generator(3);
    first_ = add_module("first", std::make_shared<Linear>(24, 24, generator, device));
    second_ = add_module("second", std::make_shared<Reuses>(first_->own_parameters()[0].second));
  }
  Tensor forward(const Tensor& x) override { return (*second_)(relu((*first_)(x))); }

 private:
  std::shared_ptr<Module> first_, second_;
};

// One parameter, gathered where it is used under either name, and saved under both.
TEST(FullyShardedParameters, MayHaveSeveralNames) {
  NullLog log;
  ModelFactory factory = factory_of({});
  factory.build = [](const std::shared_ptr<Device>& device) { return std::make_unique<Tied>(device); };
  run_thread_ranks(2, {}, log, [&](Communicator& communicator) {
    const auto device = make_device("cpu");
    StepClock clock;
    const StrategyContext context{communicator, device, kPatience, {&clock}};
    std::vector<std::unique_ptr<Strategy>> strategies;
    strategies.push_back(make_data_parallel(context));
    for (const ShardStage stage : {ShardStage::optimizer, ShardStage::parameters})
      strategies.push_back(make_sharded(context, ShardOptions{.stage = stage, .bucket_bytes = 2048}));
    std::vector<std::vector<std::vector<float>>> values;
    for (const auto& strategy : strategies) {
      strategy->prepare(factory, kNever);
      strategy->begin(kNever);
      for (int step = 0; step < 3; ++step) {
        Numbers passes(step, strategy->share(), 1, 24, device);
        strategy->step(passes);
      }
      values.push_back(values_of(strategy->module().state_dict()));
      EXPECT_EQ(values.back(), values.front());
      std::vector<std::string> names;
      for (const NamedShard& saved : strategy->save().model) names.push_back(saved.name);
      if (!strategy->sharded()) continue;
      EXPECT_THAT(names, testing::UnorderedElementsAre("first.weight", "first.bias", "second.weight"));
    }
    communicator.barrier("end")->wait(kNever);
  });
}

/// The caller's passes, noting the memory when gradients are shared, and the most before.
class Counted final : public MicroBatches {
 public:
  Counted(MicroBatches& inner, Device& device) : inner_(inner), device_(device) {}
  std::size_t count() const noexcept override { return inner_.count(); }
  Tensors inputs(std::size_t i) override { return inner_.inputs(i); }
  Tensor loss(std::size_t i, const Tensors& outputs) override { return inner_.loss(i, outputs); }
  double weight(std::size_t i) const override { return inner_.weight(i); }
  void losses_done() override {}
  void gradients_done() override { held = device_.allocated_bytes(); }

  std::size_t held = 0;

 private:
  MicroBatches& inner_;
  Device& device_;
};

// Facts: 16 P / W and two buckets, and while modules compute the two largest of them. At no moment more, the
// building of the network included.
TEST(DividedMemory, IsThatOfTheFormulaAtEveryMoment) {
  const Setting setting{.widths = large_widths(), .bucket_bytes = 1U << 20};
  const std::int64_t width = setting.widths[1];
  constexpr std::size_t kBuckets = 2U << 20;
  for (const int ranks : {2, 4, 8}) {
    NullLog log;
    std::mutex mutex;
    std::size_t elements = 0, most_held = 0, least_held = SIZE_MAX, most_ever = 0, largest = 0;
    GatherStats stats;
    run_thread_ranks(ranks, {}, log, [&](Communicator& communicator) {
      const auto device = make_device("cpu");
      StepClock clock;
      const auto model =
          make_sharded({communicator, device, std::chrono::minutes(5), {&clock}},
                       {.stage = ShardStage::parameters, .bucket_bytes = setting.bucket_bytes});
      Strategy& strategy = *model;
      strategy.prepare(factory_of(setting), kNever);
      strategy.begin(kNever);
      std::size_t held = 0;
      for (int step = 0; step < 3; ++step) {
        Numbers inner(step, strategy.share(), 1, setting.widths.front(), device);
        Counted passes(inner, *device);
        strategy.step(passes, Exchange::all);
        held = passes.held;
      }
      const std::lock_guard lock(mutex);
      elements = static_cast<std::size_t>(strategy.module().parameter_count());
      most_held = std::max(most_held, held), least_held = std::min(least_held, held);
      most_ever = std::max(most_ever, device->peak_allocated_bytes());
      largest = model->sync().shards()->fully_sharded()->two_largest_bytes();
      stats = model->sync().shards()->fully_sharded()->stats();
    });
    const std::size_t formula = 16 * elements / static_cast<std::size_t>(ranks);
    const std::size_t padding = 4 * 4 * 16 * 10;  // four numbers an element, ten parameters
    const auto activations = static_cast<std::size_t>(8 * 4 * 4 * (4 * width + 128));
    const auto number = [](std::size_t bytes) { return static_cast<double>(bytes); };
    show_memory("parameters", ranks, number(elements), number(formula), number(most_held));
    show_memory("at any time", ranks, number(elements), number(formula + largest), number(most_ever));
    EXPECT_LE(most_held, formula + kBuckets + padding) << ranks << " ranks";
    EXPECT_GE(least_held + padding, formula) << "something is not counted";
    EXPECT_LE(most_ever, formula + kBuckets + padding + largest + activations) << ranks << " ranks";
    EXPECT_GT(stats.prefetched, 0U);
  }
}

}  // namespace
}  // namespace dtrain
