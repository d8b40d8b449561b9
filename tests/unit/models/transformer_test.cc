// The transformer: it sees no token that is still to come, and split among ranks (threads here) it gives
// the losses and weights of the whole one, saved and loaded at any width.
#include "models/text/transformer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/thread_ranks.h"
#include "parallel/forms.h"
#include "parallel/mesh.h"
#include "parallel/placed/replicated_module.h"
#include "parallel/tensor/layers.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/autograd/ops/linear_cross_entropy.h"
#include "runtime/base/error.h"
#include "runtime/data/sources/text_source.h"
#include "runtime/nn/dropout.h"
#include "runtime/optim/sgd.h"
#include "tests/support/message_of.h"
#include "tests/support/put_together.h"

namespace dtrain {
namespace {

using testing::HasSubstr;

const Deadline kNever = Deadline::never();
constexpr TransformerShape kShape{.vocabulary = 24, .context = 8, .width = 16, .heads = 4, .layers = 2};
constexpr std::int64_t kBatch = 4;

Tensor tokens(std::uint64_t seed, std::int64_t length, const std::shared_ptr<Device>& device) {
  Generator generator(seed);
  std::vector<double> drawn(static_cast<std::size_t>(kBatch * length));
  generator.uniform(drawn, 0, static_cast<double>(kShape.vocabulary));
  std::vector<std::int32_t> values;
  for (const double value : drawn)
    values.push_back(static_cast<std::int32_t>(value) % static_cast<std::int32_t>(kShape.vocabulary));
  return Tensor::from_data(values, {kBatch, length}, device);
}

TEST(Transformer, SeesNothingThatIsToCome) {
  const auto device = make_device("cpu");
  Generator generator(1);
  Transformer network(kShape, generator, device);
  const NoGrad no_grad;
  const Tensor x = tokens(1, 8, device);
  Tensor other = x.clone();
  other.slice(1, 5, 8).fill(3);
  const Tensor a = network(x), b = network(other);
  EXPECT_EQ(a.slice(1, 0, 5).to_vector<float>(), b.slice(1, 0, 5).to_vector<float>());
  EXPECT_NE(a.slice(1, 5, 8).to_vector<float>(), b.slice(1, 5, 8).to_vector<float>());
  EXPECT_EQ(a.shape(), (Dims{kBatch, 8, 24}));
  EXPECT_THAT(test::message_of([&] { network(tokens(1, 9, device)); }), HasSubstr("at most 8"));
}

TransformerShape dropping(double dropout) {
  TransformerShape shape = kShape;
  shape.dropout = dropout;
  return shape;
}

TEST(Transformer, DropsInTrainingAlone) {
  const auto device = make_device("cpu");
  const auto made = [&](double dropout) {
    Generator generator(1);
    return std::make_unique<Transformer>(dropping(dropout), generator, device);
  };
  const auto without = made(0), with = made(0.5);
  EXPECT_THAT(dropout_keys(*without), testing::IsEmpty());
  const Tensor x = tokens(1, 8, device);
  const NoGrad no_grad;
  EXPECT_NE((*with)(x).to_vector<float>(), (*without)(x).to_vector<float>());
  with->eval();
  EXPECT_EQ((*with)(x).to_vector<float>(), (*without)(x).to_vector<float>())
      << "weights are drawn as without";
  EXPECT_EQ(with->state_dict().size(), without->state_dict().size());
  for (const double share : {-0.1, 1.0})
    EXPECT_THAT(test::message_of([&] { made(share); }),
                HasSubstr("a dropout of at least 0 and below 1, got"));
}

/// The loss of `network`, which may leave its head to it, then its gradients by the names of `owner`'s
/// parameters.
std::map<std::string, std::vector<float>> loss_and_gradients(Module& network, Module& owner,
                                                             const std::shared_ptr<Device>& device) {
  const Tensors outputs = network(Tensors{tokens(1, 8, device)});
  const Tensor x = outputs[0].reshape({-1, outputs[0].size(-1)});
  const Tensor target = tokens(2, 8, device).to(DType::i64).reshape({-1});
  const Tensor loss =
      outputs.size() == 2 ? linear_cross_entropy(x, outputs[1], target) : cross_entropy(x, target);
  loss.backward();
  std::map<std::string, std::vector<float>> found{{"loss", {static_cast<float>(loss.item())}}};
  for (const auto& [name, tensor] : owner.named_parameters()) found[name] = tensor.grad().to_vector<float>();
  return found;
}

void expect_near(const std::map<std::string, std::vector<float>>& a,
                 const std::map<std::string, std::vector<float>>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, values] : a) {
    ASSERT_TRUE(b.contains(name)) << name;
    for (std::size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(values[i], b.at(name)[i], 1e-5) << name;
  }
}

TEST(Transformer, LeavesItsHeadToTheLossInTraining) {
  const std::vector<std::shared_ptr<Device>> devices{make_device("cpu:0"), make_device("cpu:1")};
  for (const bool tied : {false, true}) {
    const auto made = [&](bool leaves, const std::shared_ptr<Device>& device) {
      TransformerShape shape = kShape;
      shape.tied = tied;
      Generator generator(1);
      auto network = std::make_shared<Transformer>(shape, generator, device);
      if (leaves) network->leave_head_to_loss();
      return network;
    };
    const auto plain = made(false, devices[0]), leaves = made(true, devices[0]);
    const auto expected = loss_and_gradients(*plain, *plain, devices[0]);
    const Tensors inputs{tokens(1, 8, devices[0])};
    EXPECT_EQ((*leaves)(inputs).size(), 2U);
    expect_near(loss_and_gradients(*leaves, *leaves, devices[0]), expected);

    const auto learning = made(true, devices[0]);
    ReplicatedModule replicated(learning, {{devices[0], learning}, {devices[1], made(true, devices[1])}});
    expect_near(loss_and_gradients(replicated, *learning, devices[0]), expected);

    const NoGrad no_grad;
    EXPECT_EQ((*leaves)(inputs[0]).to_vector<float>(), (*plain)(inputs[0]).to_vector<float>());
    leaves->eval();
    EXPECT_EQ((*leaves)(inputs).size(), 1U);
  }
}

TEST(Transformer, NeedsWhatItsRanksCanShare) {
  NullLog log;
  run_thread_ranks(3, {}, log, [](Communicator& communicator) {
    const TensorParallelGroup tp_group{{communicator, std::chrono::seconds(30)}, false};
    Generator generator(1);
    EXPECT_THAT(test::message_of([&] { Transformer(kShape, generator, make_device("cpu"), &tp_group); }),
                HasSubstr("multiples of the 3 workers, got 4 heads of keys and an inner width of 64"));
    communicator.barrier("end")->wait(kNever);
  });
}

/// Step `step`, cut over the shares; each reports the loss of its part.
class Steps final : public MicroBatches {
 public:
  Steps(int step, DataShare share, const TensorParallelGroup* tp_group, Module& network,
        std::shared_ptr<Device> device)
      : step_(step), share_(share), tp_group_(tp_group), network_(network), device_(std::move(device)) {}
  std::size_t count() const noexcept override { return 1; }
  Tensors inputs(std::size_t) override {
    std::vector<std::int64_t> samples;
    for (std::int64_t row = share_.rank; row < kBatch; row += share_.size) samples.push_back(row);
    for (const auto& key : dropout_keys(network_)) {
      key->set_step(step_);
      key->set_rows(Tensor::from_data(samples, {static_cast<std::int64_t>(samples.size())}, device_));
    }
    return {rows().slice(1, 0, 8).contiguous()};
  }
  Tensor loss(std::size_t, const Tensors& outputs) override {
    const Tensor logits = outputs[0].reshape({-1, outputs[0].size(-1)});
    const Tensor target = rows().slice(1, 1, 9).to(DType::i64).reshape({-1});
    return tp_group_ == nullptr ? cross_entropy(logits, target)
                                : vocab_parallel_cross_entropy(logits, target, tp_group_->group, "loss");
  }
  double weight(std::size_t) const override { return 1.0; }
  void losses_done() override {}
  void gradients_done() override {}

 private:
  Tensor rows() const {
    return tokens(static_cast<std::uint64_t>(step_), 9, device_)
        .slice(0, share_.rank, kBatch, share_.size)
        .contiguous();
  }
  int step_;
  DataShare share_;
  const TensorParallelGroup* tp_group_;
  Module& network_;
  std::shared_ptr<Device> device_;
};

ModelFactory factory_of(const TensorParallelGroup* tp_group, double dropout) {
  GradientLimits limits;
  limits.norm = 0.3;
  return {.build =
              [tp_group, dropout](const std::shared_ptr<Device>& device) {
                Generator generator(7);
                return std::make_unique<Transformer>(dropping(dropout), generator, device, tp_group);
              },
          .make_optimizer = [](const NamedTensors& parameters) -> std::unique_ptr<Optimizer> {
            // Adam would make steps of what is noise: the gradient of the keys' biases.
            return std::make_unique<Sgd>(parameters, SgdOptions{.lr = 0.3, .momentum = 0.9});
          },
          .limits = limits};
}

std::map<std::string, std::vector<float>> whole_network(int steps, double dropout) {
  NullLog log;
  std::map<std::string, std::vector<float>> state;
  run_thread_ranks(1, {}, log, [&](Communicator& communicator) {
    const auto device = make_device("cpu");
    StepClock clock;
    const auto model = make_data_parallel({communicator, device, std::chrono::seconds(30), {&clock}});
    Strategy& strategy = *model;
    strategy.prepare(factory_of(nullptr, dropout), kNever);
    strategy.begin(kNever);
    for (int step = 0; step < steps; ++step) {
      Steps passes(step, strategy.share(), nullptr, strategy.module(), device);
      strategy.step(passes, Exchange::all);
    }
    for (const auto& [name, tensor] : strategy.module().state_dict()) state[name] = tensor.to_vector<float>();
  });
  return state;
}

struct Case {
  int dp, tp;
  bool sequence;
  double dropout = 0;
};

class TensorParallelTransformer : public testing::TestWithParam<Case> {};

TEST_P(TensorParallelTransformer, LearnsWhatTheWholeOneDoes) {
  const Case& grid = GetParam();
  const auto expected = whole_network(4, grid.dropout);
  NullLog log;
  std::mutex mutex;
  test::PutTogether saved;
  run_thread_ranks(grid.dp * grid.tp, {}, log, [&](Communicator& communicator) {
    const auto device = make_device("cpu");
    StepClock clock;
    const auto patience = std::chrono::seconds(30);
    const Mesh mesh(communicator, {{"dp", grid.dp}, {"tp", grid.tp}}, kNever);
    const TensorParallelGroup tp_group{{mesh.group("tp"), patience}, grid.sequence};
    const auto model = make_tensor_parallel(
        {communicator, device, patience, {&clock}}, tp_group.group,
        make_data_parallel(StrategyContext{mesh.group("dp"), device, patience, {&clock}}));
    Strategy& strategy = *model;
    strategy.prepare(factory_of(&tp_group, grid.dropout), kNever);
    strategy.begin(kNever);
    EXPECT_EQ(strategy.share().size, grid.dp);
    EXPECT_EQ(strategy.holds_outputs(), mesh.coordinate("tp") == 0);
    for (int step = 0; step < 4; ++step) {
      Steps passes(step, strategy.share(), &tp_group, strategy.module(), device);
      strategy.step(passes, Exchange::all);
    }
    strategy.module().eval();
    const Tensors outputs = strategy.evaluate({tokens(1, 8, device)});
    EXPECT_EQ(outputs.size(), mesh.coordinate("tp") == 0 ? 1U : 0U);
    if (!outputs.empty()) {
      EXPECT_EQ(outputs[0].shape(), (Dims{kBatch, 8, 24}));
    }

    const RankState parts = strategy.save();
    {
      const std::lock_guard lock(mutex);
      saved.add(parts.model);
    }
    communicator.barrier("end")->wait(kNever);
  });
  ASSERT_EQ(saved.values.size(), expected.size());
  for (const auto& [name, values] : expected) {
    ASSERT_EQ(saved.values[name].size(), values.size()) << name;
    EXPECT_EQ(saved.counted[name], static_cast<std::int64_t>(values.size())) << name << ": each element once";
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(saved.values[name][i], values[i], 1e-5) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Grids, TensorParallelTransformer,
                         testing::Values(Case{1, 2, false}, Case{1, 4, true}, Case{2, 2, true},
                                         Case{4, 1, false}, Case{1, 2, false, 0.2}, Case{2, 2, true, 0.2}));

TEST(TextSource, GivesEachByteOnceAsATarget) {
  const auto text = std::make_shared<const std::string>("abcdefghijkl");
  const TextSource source("text", text, 3);
  EXPECT_EQ(source.size(), 3);
  KeyedGenerator generator(0, 0, 0);
  std::int32_t window[4];
  const View view{window, DType::i32, {4}, {1}};
  source.read(2, {&view, 1}, generator);
  EXPECT_EQ(std::vector<std::int32_t>(window, window + 4), (std::vector<std::int32_t>{'g', 'h', 'i', 'j'}));
  EXPECT_THAT(test::message_of([&] { TextSource("book", text, 12); }),
              HasSubstr("book: expected a context of at least 1 and a text that is longer, got 12 and 12"));
}

}  // namespace
}  // namespace dtrain
