// Names, order, state and initial values of modules.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/base/error.h"
#include "runtime/nn/init.h"
#include "runtime/nn/layers.h"
#include "tests/support/message_of.h"

namespace dtrain {
namespace {

class Block : public Module {
 public:
  Block(Generator& generator, const std::shared_ptr<Device>& device) {
    inner_ = add_module("inner", std::make_shared<Linear>(2, 3, generator, device));
    scale_ = add_parameter("scale", Tensor::ones({3}, device));
    seen_ = add_buffer("seen", Tensor::zeros({1}, device, DType::i64));
  }
  Tensor forward(const Tensor& x) override { return inner_->forward(x) * scale_; }
  using Module::add_buffer;
  using Module::add_parameter;

  Tensor scale_, seen_;

 private:
  std::shared_ptr<Linear> inner_;
};

std::vector<std::string> names_of(const NamedTensors& tensors) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors) names.push_back(name);
  return names;
}

class ModuleTest : public testing::Test {
 protected:
  std::shared_ptr<Device> device_ = make_device("cpu");
  Generator generator_{0};
};

using Names = std::vector<std::string>;

TEST_F(ModuleTest, NamesFollowPyTorch) {
  Block block(generator_, device_);
  EXPECT_EQ(names_of(block.named_parameters()), (Names{"scale", "inner.weight", "inner.bias"}));
  EXPECT_EQ(names_of(block.named_buffers()), (Names{"seen"}));
  EXPECT_EQ(names_of(block.state_dict()), (Names{"scale", "seen", "inner.weight", "inner.bias"}));
  EXPECT_EQ(block.parameter_count(), 3 + 6 + 3);
  for (const auto& [name, tensor] : block.named_parameters()) EXPECT_TRUE(tensor.requires_grad()) << name;
  for (const auto& [name, tensor] : block.state_dict()) EXPECT_FALSE(tensor.requires_grad()) << name;
}

TEST_F(ModuleTest, StateGoesFromOneModuleToAnother) {
  Block from(generator_, device_), to(generator_, device_);
  from.seen_.fill(7);
  to.load_state_dict(from.state_dict());
  const auto expected = from.state_dict(), got = to.state_dict();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(got[i].second.to_vector<double>(), expected[i].second.to_vector<double>()) << got[i].first;
    EXPECT_FALSE(got[i].second.shares_storage(expected[i].second));
  }
  EXPECT_EQ(to.seen_.item(), 7);
}

TEST_F(ModuleTest, WrongStateIsRefusedWholeAndByName) {
  Block block(generator_, device_);
  const auto before = block.scale_.to_vector<float>();
  const NamedTensors wrong = {{"scale", Tensor::zeros({3}, device_)},
                              {"seen", Tensor::zeros({1}, device_)},
                              {"inner.weight", Tensor::zeros({2, 3}, device_)},
                              {"outer.bias", Tensor::zeros({3}, device_)}};
  try {
    block.load_state_dict(wrong);
    FAIL() << "did not throw";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "load_state_dict: the state does not fit this module; missing: inner.bias; unexpected: "
                 "outer.bias; wrong shape: inner.weight (expected [3, 2], got [2, 3])");
  }
  EXPECT_THROW(block.load_state_dict(wrong, false), UsageError);
  EXPECT_EQ(block.scale_.to_vector<float>(), before);
  block.load_state_dict({{"scale", Tensor::zeros({3}, device_)}, {"other", Tensor::zeros({1}, device_)}},
                        false);
  EXPECT_EQ(block.scale_.to_vector<float>(), (std::vector<float>{0, 0, 0}));
  EXPECT_THROW(block.load_state_dict({{"scale", block.scale_}, {"scale", block.scale_}}, false), UsageError);
}

// A file may have tied weights under one of their names; of several the last one counts, as in PyTorch.
TEST_F(ModuleTest, TiedWeightsLoadUnderAnyOfTheirNames) {
  class Tied final : public Module {
   public:
    explicit Tied(const std::shared_ptr<Device>& device) {
      const Tensor weight = add_parameter("weight", Tensor::zeros({2}, device));
      add_parameter("again", weight);
      add_parameter("own", Tensor::zeros({2}, device));
    }
    Tensor forward(const Tensor& x) override { return x; }
  } module(device_);
  const auto number = [&](double value) { return Tensor::full({2}, value, device_); };
  const auto weight = [&] { return module.state_dict()[0].second.to_vector<float>()[0]; };
  module.load_state_dict({{"again", number(1)}, {"own", number(5)}});
  EXPECT_EQ(weight(), 1);
  module.load_state_dict({{"own", number(5)}, {"weight", number(2)}});
  EXPECT_EQ(weight(), 2);
  module.load_state_dict({{"again", number(4)}, {"weight", number(3)}, {"own", number(5)}});
  EXPECT_EQ(weight(), 4);
  EXPECT_THAT(test::message_of([&] {
                module.load_state_dict({{"own", number(5)}});
              }),
              testing::HasSubstr("missing: weight, again"));
}

TEST_F(ModuleTest, NamesMustBeNewAndPlain) {
  Block block(generator_, device_);
  EXPECT_THROW(block.add_parameter("scale", Tensor::ones({1}, device_)), UsageError);
  EXPECT_THROW(block.add_buffer("inner", Tensor::ones({1}, device_)), UsageError);
  EXPECT_THROW(block.add_parameter("a.b", Tensor::ones({1}, device_)), UsageError);
  EXPECT_THROW(block.add_parameter("", Tensor::ones({1}, device_)), UsageError);
}

TEST_F(ModuleTest, SequentialChainsAndNumbers) {
  auto first = std::make_shared<Linear>(4, 3, generator_, device_);
  auto second = std::make_shared<Linear>(3, 2, generator_, device_, LinearOptions{false});
  Sequential net({std::make_shared<Flatten>(), first, std::make_shared<ReLU>(), second});
  EXPECT_EQ(names_of(net.named_parameters()), (Names{"1.weight", "1.bias", "3.weight"}));
  const Tensor x = Tensor::rand({5, 2, 2}, generator_, device_);
  EXPECT_EQ(net(x).to_vector<float>(), (*second)(relu((*first)(flatten(x)))).to_vector<float>());
  net.eval();
  EXPECT_FALSE(first->is_training());
  net.train();
  EXPECT_TRUE(first->is_training());
  sum(net(x)).backward();
  net.zero_grad();
  for (const auto& [name, tensor] : net.named_parameters()) EXPECT_FALSE(tensor.grad().defined()) << name;
}

// What a pipeline cuts it into.
TEST_F(ModuleTest, SequentialIsAChainOfItsModules) {
  const auto first = std::make_shared<Linear>(4, 4, generator_, device_);
  const auto act = std::make_shared<ReLU>();
  Sequential net({first, act, std::make_shared<Linear>(4, 2, generator_, device_), act});
  const std::vector<LayerUnit> parts = net.chain();
  ASSERT_EQ(parts.size(), 4U);
  EXPECT_EQ(parts[2].modules.front().first, "2");
  const Tensor x = Tensor::rand({5, 4}, generator_, device_);
  EXPECT_EQ(through(parts, x).to_vector<float>(), net(x).to_vector<float>());
  EXPECT_THAT(test::message_of([&] { through(parts, x, {x}); }), testing::HasSubstr("expected one input"));
  EXPECT_THAT(test::message_of([&] {
                Sequential({first, act, first}).chain();
              }),
              testing::HasSubstr("got module 2 a second time"));
}

TEST_F(ModuleTest, FusedActivationIsTheSame) {
  Generator one(5), two(5);
  Linear plain(4, 3, one, device_), fused(4, 3, two, device_, {true, Activation::relu});
  const Tensor x = Tensor::rand({6, 4}, generator_, device_, -1, 1);
  EXPECT_EQ(relu(plain(x)).to_vector<float>(), fused(x).to_vector<float>());
}

TEST_F(ModuleTest, PoolingShapes) {
  const Tensor x = Tensor::rand({1, 2, 6, 6}, generator_, device_);
  EXPECT_EQ(MaxPool2d(2)(x).shape(), (Dims{1, 2, 3, 3}));
  EXPECT_EQ(MaxPool2d(3, 2, 1)(x).shape(), (Dims{1, 2, 3, 3}));
  EXPECT_EQ(AvgPool2d(3, 1)(x).shape(), (Dims{1, 2, 4, 4}));
  EXPECT_THROW(MaxPool2d(0), UsageError);
  EXPECT_THROW(AvgPool2d(2, 2, 2), UsageError);
}

TEST_F(ModuleTest, ConvolutionsCheckTheirGroups) {
  Conv2dOptions grouped;
  grouped.geometry.groups = 2;
  Conv2d conv(4, 6, 3, generator_, device_, grouped);
  EXPECT_EQ(conv.state_dict()[0].second.shape(), (Dims{6, 2, 3, 3}));
  EXPECT_THROW(Conv2d(3, 6, 3, generator_, device_, grouped), UsageError);
  EXPECT_THROW(Linear(0, 1, generator_, device_), UsageError);
}

TEST_F(ModuleTest, InitialValuesStayWithinTheirBound) {
  EXPECT_EQ(fan_in({8, 3, 5, 5}), 75);
  EXPECT_THROW(fan_in({8}), UsageError);
  const float bound = 1.0F / std::sqrt(75.0F);
  float largest = 0;
  for (const float value : init_weight({8, 3, 5, 5}, generator_, device_).to_vector<float>()) {
    largest = std::max(largest, std::abs(value));
  }
  EXPECT_LE(largest, bound * 1.000001F);
  EXPECT_GE(largest, bound * 0.95F);
}

}  // namespace
}  // namespace dtrain
