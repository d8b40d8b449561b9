// One network on several devices of a process: rows scattered and gathered, the bits of data parallelism,
// where memory is, and what survives of buffers and masks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/thread_ranks.h"
#include "parallel/forms.h"
#include "parallel/placed/multi_device_strategy.h"
#include "runtime/autograd/gradients.h"
#include "runtime/base/error.h"
#include "runtime/nn/dropout.h"
#include "runtime/nn/layers.h"
#include "runtime/optim/sgd.h"
#include "runtime/tensor/defaults.h"
#include "tests/support/message_of.h"

namespace dtrain {
namespace {

using testing::HasSubstr;

const Deadline kNever = Deadline::never();
constexpr auto kPatience = std::chrono::seconds(30);

std::vector<std::shared_ptr<Device>> cpus(int count) {
  std::vector<std::shared_ptr<Device>> devices;
  for (int i = 0; i < count; ++i) devices.push_back(make_device("cpu:" + std::to_string(i)));
  return devices;
}

TEST(Scatter, GathersWhatItDealt) {
  const auto devices = cpus(3);
  for (const RowSplit split : {RowSplit::every_kth, RowSplit::runs}) {
    for (const std::int64_t rows : {1, 2, 3, 4, 6, 7}) {
      Tensor x = Tensor::arange(rows * 2, devices[0], DType::f32).view({rows, 2});
      x.set_requires_grad(true);
      const Tensors parts = scatter_rows(x, devices, split);
      for (std::size_t i = 0; i < parts.size(); ++i) EXPECT_EQ(parts[i].shared_device(), devices[i]);
      const Tensor back = gather_rows(parts, devices[1], split);
      EXPECT_EQ(back.shared_device(), devices[1]);
      EXPECT_EQ(back.to_vector<float>(), x.to_vector<float>()) << rows << " rows";
      sum(mul(back, back)).backward();
      EXPECT_EQ(x.grad().to_vector<float>(), mul(x.detach(), 2.0).to_vector<float>());
    }
  }
  const Tensor x = Tensor::arange(5, devices[0], DType::f32);
  EXPECT_EQ(scatter_rows(x, devices, RowSplit::every_kth)[0].to_vector<float>(), (std::vector<float>{0, 3}));
  EXPECT_EQ(scatter_rows(x, devices, RowSplit::runs)[0].to_vector<float>(), (std::vector<float>{0, 1}));
  EXPECT_EQ(scatter_rows(Tensor::arange(4, devices[0], DType::f32), devices, RowSplit::runs).size(), 2U)
      << "as torch.chunk";
}

/// Convolution, batch norm, dropout and a parameter of the network's own.
class Net final : public Module {
 public:
  explicit Net(const std::shared_ptr<Device>& device, bool norm = true) : Net(Generator(3), device, norm) {}
  Tensor forward(const Tensor& x) override {
    Tensor h = relu((*conv_)(x));
    if (norm_) h = (*norm_)(h);
    h = (*dropout_)(h).flatten(1);
    return mul((*out_)(h), scale_);
  }

 private:
  Net(Generator generator, const std::shared_ptr<Device>& device, bool norm)
      : scale_(add_parameter("scale", Tensor::full({5}, 1.5, device))),
        conv_(add_module("conv", std::make_shared<Conv2d>(2, 4, 3, generator, device))),
        norm_(norm ? add_module("norm", std::make_shared<BatchNorm2d>(4, device)) : nullptr),
        dropout_(add_module("drop", std::make_shared<Dropout>(0.2, std::make_shared<DropoutKey>(9, device)))),
        out_(add_module("out", std::make_shared<Linear>(4 * 6 * 6, 5, generator, device))) {}

  Tensor scale_;
  std::shared_ptr<Conv2d> conv_;
  std::shared_ptr<BatchNorm2d> norm_;
  std::shared_ptr<Dropout> dropout_;
  std::shared_ptr<Linear> out_;
};

constexpr std::int64_t kBatch = 16;

/// The global batch of a step, of which this share takes every size-th row; masks are keyed by its rows.
class RowsOfStep final : public MicroBatches {
 public:
  RowsOfStep(int step, DataShare share, Module& network, std::shared_ptr<Device> device)
      : step_(step), share_(share), network_(network), device_(std::move(device)) {}
  std::size_t count() const noexcept override { return 1; }
  Tensors inputs(std::size_t) override {
    std::vector<std::int64_t> rows;
    for (std::int64_t row = share_.rank; row < kBatch; row += share_.size) rows.push_back(row);
    const Tensor index = Tensor::from_data(rows, {static_cast<std::int64_t>(rows.size())}, device_);
    for (const auto& key : dropout_keys(network_)) {
      key->set_step(step_);
      key->set_rows(index);
    }
    Generator generator(static_cast<unsigned>(step_));
    return {Tensor::randn({kBatch, 2, 8, 8}, generator, device_).index_select(0, index)};
  }
  Tensor loss(std::size_t, const Tensors& outputs) override { return mean(mul(outputs[0], outputs[0])); }
  double weight(std::size_t) const override { return 1.0; }
  void losses_done() override {}
  void gradients_done() override {}

 private:
  int step_;
  DataShare share_;
  Module& network_;
  std::shared_ptr<Device> device_;
};

ModelFactory parts_of_training(bool norm) {
  return {
      .build = [norm](const std::shared_ptr<Device>& device) { return std::make_unique<Net>(device, norm); },
      .make_optimizer = [](const NamedTensors& parameters) -> std::unique_ptr<Optimizer> {
        return std::make_unique<Sgd>(parameters, SgdOptions{.lr = 0.1, .momentum = 0.9});
      }};
}

using Values = std::vector<std::pair<std::string, std::vector<double>>>;

struct Setting {
  int ranks = 1;
  int devices = 1;  ///< of each rank; 1: no replicas
  bool host = false;
  bool shard = false;
  bool norm = true;
};

/// State after three steps, of rank 0.
Values train(const Setting& setting) {
  NullLog log;
  Values state;
  run_thread_ranks(setting.ranks, {}, log, [&](Communicator& communicator) {
    const auto devices = cpus(setting.devices);
    StepClock clock;
    const StrategyContext context{
        communicator, setting.host ? make_device("cpu") : devices[0], kPatience, {&clock}};
    std::unique_ptr<Strategy> strategy;
    if (setting.shard) {
      strategy = make_sharded(context, ShardOptions{.bucket_bytes = 2048});
    } else {
      strategy = make_data_parallel(context);
    }
    if (setting.devices > 1) strategy = std::make_unique<MultiDeviceStrategy>(std::move(strategy), devices);
    strategy->prepare(parts_of_training(setting.norm), kNever);
    strategy->begin(kNever);
    for (int step = 0; step < 3; ++step) {
      RowsOfStep passes(step, strategy->share(), strategy->module(), devices[0]);
      strategy->step(passes, Exchange::all);
    }
    strategy->sync_state(kNever);
    if (communicator.rank() == 0) {
      for (const auto& [name, tensor] : strategy->module().state_dict())
        state.emplace_back(name, tensor.to(DType::f64).to_vector<double>());
    }
    communicator.barrier("end")->wait(kNever);
  });
  return state;
}

TEST(Replicas, GiveTheBitsOfDataParallelism) {
  for (const int count : {2, 4, 8}) {
    const Values expected = train({.ranks = count});
    EXPECT_EQ(train({.devices = count}), expected) << count << " devices against as many ranks";
    EXPECT_EQ(train({.devices = count, .host = true}), expected) << "updated on the host";
  }
}

TEST(Replicas, WorkInsideOtherStrategies) {
  // Rank r of two, device j of two: rows r + 2 j, as ranks 0, 2, 1, 3 of four would have them.
  const Values four = train({.ranks = 2, .devices = 2, .norm = false});
  const Values expected = train({.ranks = 4, .norm = false});
  ASSERT_EQ(four.size(), expected.size());
  for (std::size_t i = 0; i < four.size(); ++i) {
    EXPECT_EQ(four[i].first, expected[i].first);
    for (std::size_t k = 0; k < four[i].second.size(); ++k)
      EXPECT_NEAR(four[i].second[k], expected[i].second[k], 1e-6) << four[i].first;
  }
  EXPECT_EQ(train({.ranks = 2, .devices = 2, .shard = true, .norm = false}), four);
}

TEST(Replicas, TheFirstDeviceHoldsMore) {
  NullLog log;
  run_thread_ranks(1, {}, log, [&](Communicator& communicator) {
    for (const bool host : {false, true}) {
      const auto devices = cpus(2);
      const auto home = host ? make_device("cpu") : devices[0];
      StepClock clock;
      MultiDeviceStrategy strategy(
          make_data_parallel(StrategyContext{communicator, home, kPatience, {&clock}}), devices);
      strategy.prepare(parts_of_training(true), kNever);
      strategy.begin(kNever);
      RowsOfStep passes(0, strategy.share(), strategy.module(), devices[0]);
      strategy.step(passes, Exchange::all);
      const auto parameters = static_cast<std::size_t>(strategy.module().parameter_count()) * 4;
      EXPECT_EQ(strategy.traffic().parameters, (host ? 2 : 1) * parameters);
      EXPECT_EQ(strategy.traffic().gradients, (host ? 2 : 1) * parameters);
      EXPECT_GT(strategy.traffic().activations, 0U);
      // Momentum and gradients are where the update is.
      EXPECT_GE(home->allocated_bytes(), 3 * parameters);
      EXPECT_LT(devices[1]->allocated_bytes(), 2 * parameters);
      if (host) {
        EXPECT_LT(devices[0]->allocated_bytes(), 2 * parameters);
      }
    }
  });
}

TEST(Replicas, EvaluateAndSaveAsTheNetworkDoes) {
  NullLog log;
  run_thread_ranks(1, {}, log, [&](Communicator& communicator) {
    const auto devices = cpus(2);
    StepClock clock;
    const StrategyContext context{communicator, devices[0], kPatience, {&clock}};
    MultiDeviceStrategy strategy(make_data_parallel(context), devices);
    strategy.prepare(parts_of_training(true), kNever);
    strategy.begin(kNever);
    Net plain(devices[0]);
    const auto names = [](const NamedTensors& tensors) {
      std::vector<std::string> all;
      for (const auto& [name, tensor] : tensors) all.push_back(name);
      return all;
    };
    EXPECT_EQ(names(strategy.module().state_dict()), names(plain.state_dict()));
    EXPECT_EQ(strategy.save().model.size(), plain.state_dict().size());
    strategy.module().eval();
    plain.eval();
    Generator generator(1);
    const Tensor x = Tensor::randn({3, 2, 8, 8}, generator, devices[0]);
    EXPECT_EQ(strategy.evaluate({x})[0].to_vector<float>(), plain(x).to_vector<float>());
  });
}

/// Values of all gradients of a cube's mean: twice backward, gradients(), and gradients of their square sum.
std::vector<std::vector<float>> every_gradient(Module& network, const Tensor& x) {
  const auto loss = [&] {
    const Tensor y = network(x);
    return mean(mul(y, mul(y, y)));
  };
  NamedTensors parameters = network.named_parameters();
  Tensors tensors;
  for (const auto& [name, tensor] : parameters) tensors.push_back(tensor);
  std::vector<std::vector<float>> values;
  const auto keep = [&] {
    for (Tensor& tensor : tensors) {
      EXPECT_EQ(tensor.grad().shared_device(), tensor.shared_device());
      values.push_back(tensor.grad().to_vector<float>());
      tensor.zero_grad();
    }
  };
  loss().backward();
  loss().backward();
  keep();
  for (const Tensor& grad : gradients(loss(), tensors)) values.push_back(grad.to_vector<float>());
  const auto first = gradients(loss(), tensors, {}, {.create_graph = true});
  add(sum(mul(first[0], first[0])), sum(mul(first[1], first[1]))).backward();
  keep();
  return values;
}

TEST(Replicas, BringGradientsHomeInEveryKindOfBackward) {
  const auto devices = cpus(2);
  const auto made = [](const std::shared_ptr<Device>& device) {
    Generator generator(3);
    return std::make_shared<Linear>(4, 3, generator, device);
  };
  Generator generator(4);
  const Tensor x = Tensor::randn({6, 4}, generator, devices[0]);
  const auto plain = made(devices[0]), net = made(devices[0]);
  const auto expected = every_gradient(*plain, x);
  for (const auto& home : {net, made(make_device("cpu"))}) {
    const auto first = home == net ? net : made(devices[0]);
    ReplicatedModule replicated(home, {{devices[0], first}, {devices[1], made(devices[1])}});
    const auto values = every_gradient(replicated, x);
    ASSERT_EQ(values.size(), expected.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      for (std::size_t k = 0; k < values[i].size(); ++k)
        EXPECT_NEAR(values[i][k], expected[i][k], 1e-5) << "gradient " << i << ", element " << k;
    }
  }
}

TEST(Replicas, AreMadeOfOneNetwork) {
  const auto devices = cpus(3);
  manual_seed(3);
  const auto plain = std::make_shared<Linear>(4, 3);
  const auto net = std::make_shared<Linear>(4, 3);
  net->load_state_dict(plain->state_dict());
  plain->to(devices[0]);
  Generator generator(4);
  const Tensor x = Tensor::randn({7, 4}, generator, devices[0]);
  const Generator before = default_generator();
  ReplicatedModule replicated(net, devices, [] { return std::make_shared<Linear>(4, 3); });
  Generator expected = before;
  EXPECT_EQ(default_generator().next32(), expected.next32()) << "replicas draw nothing";
  EXPECT_EQ(net->weight().shared_device(), devices[0]);
  const auto single = every_gradient(*plain, x), together = every_gradient(replicated, x);
  ASSERT_EQ(single.size(), together.size());
  for (std::size_t i = 0; i < single.size(); ++i) {
    for (std::size_t k = 0; k < single[i].size(); ++k)
      EXPECT_NEAR(single[i][k], together[i][k], 1e-5) << "gradient " << i << ", element " << k;
  }
  EXPECT_THAT(test::message_of([&] {
                ReplicatedModule(net, {devices[0], devices[1], devices[0]},
                                 [] { return std::make_shared<Linear>(4, 3); });
              }),
              HasSubstr("twice"));
}

TEST(Replicas, SayWhatIsWrong) {
  const auto devices = cpus(2);
  EXPECT_THAT(test::message_of([&] {
                ReplicatedModule(std::make_shared<Net>(devices[0]),
                                 {{devices[1], std::make_shared<Net>(devices[1], false)}});
              }),
              HasSubstr("expected the same parameters on all devices, got norm.weight"));
  NullLog log;
  run_thread_ranks(1, {}, log, [&](Communicator& communicator) {
    StepClock clock;
    const StrategyContext context{communicator, devices[0], kPatience, {&clock}};
    const auto made = [&](std::vector<std::shared_ptr<Device>> some) {
      return test::message_of([&] { MultiDeviceStrategy(make_data_parallel(context), some); });
    };
    EXPECT_THAT(made({devices[0]}), HasSubstr("expected two devices or more, got 1"));
    EXPECT_THAT(made({devices[0], devices[1], devices[0]}), HasSubstr("twice"));
  });
}

}  // namespace
}  // namespace dtrain
