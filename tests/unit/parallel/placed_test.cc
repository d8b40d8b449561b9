// Networks over several devices of one process: names and devices, modules on devices of their own, branches
// at the same time, and pipelines whose stages are devices.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "collectives/thread_ranks.h"
#include "parallel/forms.h"
#include "parallel/placed/device_map.h"
#include "parallel/placed/placed_module.h"
#include "parallel/placed/placed_network.h"
#include "parallel/placed/placed_strategy.h"
#include "runtime/autograd/fork.h"
#include "runtime/base/error.h"
#include "runtime/nn/layers.h"
#include "runtime/optim/sgd.h"
#include "tests/support/message_of.h"
#include "tests/unit/parallel/layers.h"

namespace dtrain {
namespace {

using test::ChainBatches;
using test::Layers;
using testing::ElementsAre;
using testing::HasSubstr;

const Deadline kNever = Deadline::never();
constexpr auto kPatience = std::chrono::seconds(30);

const std::vector<std::vector<std::string>> kParts = {
    {"embed"}, {"blocks.0"}, {"blocks.1"}, {"norm", "head"}};

TEST(DeviceMap, PlacesWholePartsByTheLongestName) {
  EXPECT_THAT(devices_of(kParts, parse_places("blocks=cpu:1,blocks.1=cpu:2,head=cpu:0"), "cpu:3"),
              ElementsAre("cpu:3", "cpu:1", "cpu:2", "cpu:0"));
  EXPECT_EQ(text_of(parse_places("a=cpu:0,b=cpu:1")), "a=cpu:0,b=cpu:1");
}

TEST(DeviceMap, ListsWhatThereIs) {
  const auto refused = [](const char* map) {
    return test::message_of([&] { devices_of(kParts, parse_places(map), "cpu:0"); });
  };
  EXPECT_THAT(
      refused("features=cpu:0"),
      HasSubstr("a module of the network (blocks, blocks.0, blocks.1, embed, head, norm), got 'features'"));
  EXPECT_THAT(refused("blocks.0.qkv=cpu:1"), HasSubstr("got 'blocks.0.qkv', which is inside 'blocks.0'"));
  EXPECT_THAT(refused("norm=cpu:0,head=cpu:1"),
              HasSubstr("norm and head on one device, got cpu:0 and cpu:1"));
  EXPECT_THAT(refused("head"), HasSubstr("got 'head'"));
  EXPECT_THAT(refused("head=cpu:0,head=cpu:1"), HasSubstr("got head twice"));
}

/// Two branches of one input, joined.
class Branches final : public Module {
 public:
  Branches(const std::shared_ptr<Device>& left, const std::shared_ptr<Device>& right) : home_(left) {
    Generator generator(5);
    left_ = add_module("left", place(std::make_shared<Linear>(16, 32, generator, left), left));
    right_ = add_module("right", place(std::make_shared<Linear>(16, 32, generator, right), right));
    head_ = add_module("head", std::make_shared<Linear>(64, 4, generator, left));
  }
  Tensor forward(const Tensor& x) override {
    const Fork right = fork([&] { return tanh((*right_)(x)); });
    const Tensor left = tanh((*left_)(x));
    return (*head_)(cat({left, right.wait().to(home_)}, 1));
  }

 private:
  std::shared_ptr<Device> home_;
  std::shared_ptr<Module> left_, right_, head_;
};

using State = std::map<std::string, std::vector<float>>;

State trained_branches(const std::shared_ptr<Device>& left, const std::shared_ptr<Device>& right) {
  Branches network(left, right);
  EXPECT_EQ(network.named_parameters()[2].second.shared_device(), right);
  Sgd sgd(network.named_parameters(), {.lr = 0.1, .momentum = 0.9});
  Generator generator(6);
  for (int step = 0; step < 4; ++step) {
    sgd.zero_grad();
    mean(square(network(Tensor::randn({8, 16}, generator, left)))).backward();
    sgd.step();
  }
  State state;
  for (const auto& [name, tensor] : network.state_dict()) state[name] = tensor.to_vector<float>();
  return state;
}

TEST(PlacedModule, BranchesOnTwoDevicesGiveTheBitsOfOne) {
  const auto one = make_device("cpu:0"), two = make_device("cpu:1");
  const State expected = trained_branches(one, one);
  EXPECT_EQ(trained_branches(one, two), expected);
  EXPECT_TRUE(expected.contains("right.weight")) << "the names of the modules that were placed";
}

TEST(PlacedModule, SaysWhatIsElsewhere) {
  const auto one = make_device("cpu:0"), two = make_device("cpu:1");
  Generator generator(1);
  EXPECT_THAT(test::message_of([&] { place(std::make_shared<Linear>(2, 2, generator, one), two); }),
              HasSubstr("weight on"));
}

/// Three layers, of which the last has the first one's weights.
class TiedEnds final : public Module, public Chained {
 public:
  explicit TiedEnds(const std::shared_ptr<Device>& device) {
    Generator generator(5);
    const auto first = std::make_shared<Linear>(8, 8, generator, device);
    const auto between = std::make_shared<Linear>(8, 8, generator, device);
    for (const auto& [name, layer] : {std::pair{"first", first}, {"between", between}, {"last", first}}) {
      add_module(name, layer);
      chain_.push_back({{{name, layer}}, [layer = layer](const Tensor& x) { return (*layer)(x); }});
    }
  }
  Tensor forward(const Tensor& x) override { return through(chain_, x); }
  std::vector<LayerUnit> chain() const override { return chain_; }

 private:
  std::vector<LayerUnit> chain_;
};

TEST(PlacedNetwork, PartsThatShareAWeightAreOnOneDevice) {
  const ModelFactory factory{.build = [](const std::shared_ptr<Device>& device) -> std::unique_ptr<Module> {
                               return std::make_unique<TiedEnds>(device);
                             },
                             .make_optimizer = {}};
  const NamedDevices devices = {{"cpu:0", make_device("cpu:0")}, {"cpu:1", make_device("cpu:1")}};
  EXPECT_THAT(test::message_of([&] {
                build_placed(factory, {"cpu:0", "cpu:0", "cpu:1"}, devices);
              }),
              HasSubstr("expected parts that share a weight on one device, got first.weight on cpu:0 and "
                        "last.weight on cpu:1; put both on one"));
  EXPECT_EQ(build_placed(factory, {"cpu:0", "cpu:1", "cpu:0"}, devices).chain.size(), 3U);
}

ModelFactory factory_of(double dropout = 0) {
  return {.build = [dropout](const std::shared_ptr<Device>& device) -> std::unique_ptr<Module> {
            return std::make_unique<Layers>(8, device, dropout);
          },
          .make_optimizer = [](const NamedTensors& parameters) -> std::unique_ptr<Optimizer> {
            return std::make_unique<Sgd>(parameters, SgdOptions{.lr = 0.2, .momentum = 0.9});
          },
          .limits = {.norm = 0.3, .value = {}},
          .example =
              [](const std::shared_ptr<Device>& device) {
                return Tensors{Tensor::ones({2, 8}, device)};
              }};
}

NamedDevices devices_named(const std::vector<std::string>& names) {
  NamedDevices devices;
  for (const std::string& name : names) devices.emplace(name, make_device(name));
  return devices;
}

using MakeStrategy =
    std::function<std::unique_ptr<Strategy>(const StrategyContext& context, const NamedDevices& devices)>;

/// Each rank has devices of its own.
State trained(int ranks, const std::vector<std::string>& names, const MakeStrategy& make,
              double dropout = 0) {
  NullLog log;
  State state;
  run_thread_ranks(ranks, {}, log, [&](Communicator& communicator) {
    StepClock clock;
    const NamedDevices devices = devices_named(names);
    const auto& home = devices.at(names.front());
    const auto strategy = make({communicator, home, kPatience, {&clock}}, devices);
    strategy->prepare(factory_of(dropout), kNever);
    strategy->begin(kNever);
    for (int step = 0; step < 3; ++step) {
      ChainBatches passes(step, strategy->share(), 8, home, &strategy->module());
      strategy->step(passes);
      EXPECT_EQ(passes.losses, 1);
    }
    strategy->sync_state(kNever);
    if (communicator.rank() != 0) return;
    for (const auto& [name, tensor] : strategy->module().state_dict())
      state[name] = tensor.to_vector<float>();
    strategy->module().eval();
    state["output"] = strategy->evaluate({Tensor::ones({1, 8}, home)})[0].to_vector<float>();
  });
  return state;
}

std::unique_ptr<Strategy> data_parallel(const StrategyContext& context, const NamedDevices& /*devices*/) {
  return make_data_parallel(context);
}

TEST(PlacedStrategy, GivesTheBitsOfOneDevice) {
  const std::vector<std::string> names = {"cpu:0", "cpu:1", "cpu:2"};
  for (const int ranks : {1, 2}) {
    for (const double dropout : {0.0, 0.3}) {
      const State expected = trained(ranks, names, data_parallel, dropout);
      for (const char* map : {"fc0=cpu:2,fc5=cpu:1", ""}) {
        if (dropout > 0 && *map != 0) map = "fc0=cpu:2,drop0=cpu:2,fc5=cpu:1,drop5=cpu:1";
        const auto places = *map == 0 ? std::vector<Place>() : parse_places(map);
        const auto placed = [&](const StrategyContext& context, const NamedDevices& devices) {
          return std::make_unique<PlacedStrategy>(context.communicator, data_parallel(context, devices),
                                                  PlaceOptions{names, places}, devices);
        };
        EXPECT_EQ(trained(ranks, names, placed, dropout), expected)
            << ranks << " ranks, map '" << map << "', dropout " << dropout;
      }
    }
  }
}

TEST(PlacedStrategy, ProposesRunsOfEqualCost) {
  const auto device = make_device("cpu");
  const std::vector<LayerUnit> chain = Layers(8, device).chain();
  const std::string devices[] = {"cpu:0", "cpu:1"};
  const std::vector<double> even(8, 1.0), late = {1, 1, 1, 1, 1, 1, 1, 13};
  EXPECT_THAT(plan_devices(chain, even, devices),
              ElementsAre("cpu:0", "cpu:0", "cpu:0", "cpu:0", "cpu:1", "cpu:1", "cpu:1", "cpu:1"));
  EXPECT_THAT(plan_devices(chain, late, devices),
              ElementsAre("cpu:0", "cpu:0", "cpu:0", "cpu:0", "cpu:0", "cpu:0", "cpu:1", "cpu:1"));
}

TEST(DevicePipeline, GivesTheBitsOfAccumulation) {
  for (const auto& names : {std::vector<std::string>{"cpu:0", "cpu:1"},
                            std::vector<std::string>{"cpu:0", "cpu:1", "cpu:2", "cpu:3"}}) {
    for (const int ranks : {1, 2}) {
      const State expected = trained(ranks, names, data_parallel);
      for (const auto& [schedule, chunks] : {std::pair{PipelineSchedule::gpipe, 1},
                                             {PipelineSchedule::one_forward_one_backward, 1},
                                             {PipelineSchedule::interleaved, 2}}) {
        EXPECT_EQ(trained(ranks, names,
                          [&, schedule = schedule, chunks = chunks](const StrategyContext& context,
                                                                    const NamedDevices& devices) {
                            return make_device_pipeline(context, names, devices,
                                                        {.schedule = schedule, .chunks = chunks});
                          }),
                  expected)
            << names.size() << " stages, " << ranks << " ranks, " << chunks << " chunks";
      }
    }
  }
}

// Stages work on different micro-batches, each of which has masks of its own; interleaved runs share a key.
TEST(DevicePipeline, DropsWhatAccumulationDrops) {
  for (const int ranks : {1, 2}) {
    const std::vector<std::string> names = {"cpu:0", "cpu:1", "cpu:2", "cpu:3"};
    const State expected = trained(ranks, names, data_parallel, 0.3);
    EXPECT_NE(expected, trained(ranks, names, data_parallel));
    for (const auto& [schedule, chunks] :
         {std::pair{PipelineSchedule::one_forward_one_backward, 1}, {PipelineSchedule::interleaved, 2}}) {
      const StageOptions options{.schedule = schedule, .chunks = chunks};
      const auto piped = [&](const StrategyContext& context, const NamedDevices& devices) {
        return make_device_pipeline(context, names, devices, options);
      };
      EXPECT_EQ(trained(ranks, names, piped, 0.3), expected) << ranks << " ranks, " << chunks << " chunks";
    }
  }
}

TEST(DevicePipeline, GivesTheSameBitsForEachCut) {
  const std::vector<std::string> names = {"cpu:0", "cpu:1"};
  const State expected = trained(2, names, data_parallel);
  for (const char* cut : {"auto", "0,1", "0,7"}) {
    EXPECT_EQ(trained(2, names,
                      [&](const StrategyContext& context, const NamedDevices& devices) {
                        return make_device_pipeline(context, names, devices, {.cut = parse_stages(cut)});
                      }),
              expected)
        << cut;
  }
}

TEST(DevicePipeline, SaysWhatFailedFirst) {
  const std::vector<std::string> names = {"cpu:0", "cpu:1"};
  const NamedDevices devices = devices_named(names);
  NullLog log;
  run_thread_ranks(1, {}, log, [&](Communicator& communicator) {
    StepClock clock;
    const auto model =
        make_device_pipeline({communicator, devices.at("cpu:0"), kPatience, {&clock}}, names, devices);
    Strategy& strategy = *model;
    strategy.prepare(factory_of(), kNever);
    strategy.begin(kNever);
    ChainBatches passes(0, strategy.share(), 8, devices.at("cpu:0"));
    passes.fail_at = 3;
    EXPECT_EQ(test::message_of([&] { strategy.step(passes, Exchange::all); }), "a loss that fails");
  });
}

}  // namespace
}  // namespace dtrain
