// Modules that move to another device: who sees the moved tensors, what moves along, and what is refused.
// tests/gpu/several_gpus_test.cc has GPUs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/error.h"
#include "runtime/nn/attention.h"
#include "runtime/nn/dropout.h"
#include "runtime/nn/layers.h"
#include "runtime/optim/sgd.h"
#include "tests/support/message_of.h"

namespace dtrain {
namespace {

using test::message_of;
using testing::HasSubstr;

/// Members made where they are declared; a buffer, and a weight that is tied.
class Net final : public Module {
 public:
  Tensor forward(const Tensor& x) override {
    return matmul(norm(relu(hidden(x))) * scale, hidden.weight()) + out(x);
  }

  Linear& hidden = add_module<Linear>("hidden", 3, 4);
  BatchNorm1d& norm = add_module<BatchNorm1d>("norm", 4);
  Linear& out = add_module<Linear>("out", 3, 3);
  Tensor scale = add_buffer("scale", Tensor::full({4}, 0.5, default_device()));
  Tensor tied = add_parameter("tied", hidden.weight());
};

class Moving : public testing::Test {
 protected:
  void SetUp() override { manual_seed(5); }
  std::shared_ptr<Device> here_ = default_device(), there_ = make_device("cpu:1");
};

TEST_F(Moving, MembersAreRegisteredWhereTheyAreDeclared) {
  const Net net;
  std::vector<std::string> names;
  for (const auto& [name, tensor] : net.state_dict()) names.push_back(name);
  EXPECT_THAT(names, testing::ElementsAre("tied", "scale", "hidden.weight", "hidden.bias", "norm.weight",
                                          "norm.bias", "norm.running_mean", "norm.running_var",
                                          "norm.num_batches_tracked", "out.weight", "out.bias"));
  EXPECT_EQ(net.children().front().second.get(), &net.hidden);
}

TEST_F(Moving, EverybodySeesTheMovedTensors) {
  Net net;
  Generator generator(1);
  const Tensor x = Tensor::randn({5, 3}, generator, here_);
  net.eval();
  const std::vector<float> before = net(x).to_vector<float>();
  const NamedTensors parameters = net.named_parameters(), snapshot = net.state_dict();
  const Tensor weight = net.hidden.weight();
  net.to(there_);
  for (const auto& [name, tensor] : net.state_dict()) EXPECT_EQ(tensor.shared_device(), there_) << name;
  for (const auto& [name, tensor] : parameters) {
    EXPECT_EQ(tensor.shared_device(), there_) << name;
    EXPECT_TRUE(tensor.requires_grad()) << name;
  }
  for (const auto& [name, tensor] : snapshot) EXPECT_EQ(tensor.shared_device(), here_) << name;
  EXPECT_TRUE(weight.is_same(net.tied));
  EXPECT_EQ(net.scale.shared_device(), there_);
  EXPECT_EQ(net(x.to(there_)).to_vector<float>(), before);
  EXPECT_THROW(net(x), UsageError);
  net.to(here_);
  EXPECT_EQ(net(x).to_vector<float>(), before);
}

TEST_F(Moving, GradientsMoveAlongAndTheOptimizerFollows) {
  Net moved, stays;
  stays.load_state_dict(moved.state_dict());
  Sgd moved_sgd(moved.named_parameters(), {.lr = 0.1, .momentum = 0.9}),
      stays_sgd(stays.named_parameters(), {.lr = 0.1, .momentum = 0.9});
  Generator generator(1);
  for (int step = 0; step < 3; ++step) {
    const Tensor x = Tensor::randn({5, 3}, generator, here_);
    sum(square(stays(x))).backward();
    sum(square(moved(step == 0 ? x : x.to(there_)))).backward();  // gradients of the first two are added
    if (step == 0) {
      moved.to(there_);
      EXPECT_EQ(moved.out.weight().grad().shared_device(), there_);
      EXPECT_EQ(moved.out.weight().grad().to_vector<float>(), stays.out.weight().grad().to_vector<float>());
      continue;
    }
    moved_sgd.step();
    stays_sgd.step();
    const NamedTensors states[] = {moved.state_dict(), stays.state_dict()};
    for (std::size_t i = 0; i < states[0].size(); ++i)
      EXPECT_EQ(states[0][i].second.to_vector<float>(), states[1][i].second.to_vector<float>())
          << states[0][i].first << " after step " << step;
  }
}

TEST_F(Moving, ABackwardOfBeforeSaysSo) {
  Net net;
  const Tensor x = Tensor::ones({5, 3}, here_);
  const Tensor loss = sum(net(x));
  net.to(there_);
  EXPECT_THAT(message_of([&] { loss.backward(); }), HasSubstr("has moved to another device since"));
  sum(net(x.to(there_))).backward();
  EXPECT_EQ(net.out.bias().grad().to_vector<float>(), (std::vector<float>{5, 5, 5}));
  // What it kept for backward is not of before either.
  Tensor weight = Tensor::ones({2}, here_), factor = Tensor::ones({2}, here_);
  factor.set_requires_grad(true);
  const Tensor product = sum(weight * factor);
  weight.move_to(there_);
  EXPECT_THAT(message_of([&] { product.backward(); }), HasSubstr("was modified in place"));
}

TEST_F(Moving, WhatIsNotRegisteredMovesToo) {
  const auto key = std::make_shared<DropoutKey>(7, here_);
  Generator generator(2);
  const RotaryEmbedding rotary(6, 4, here_);
  SelfAttention attention(8, 2, generator, here_, {.causal = true, .rotary = rotary});
  Dropout dropout(0.5, key);
  key->set_step(3);
  const Tensor x = Tensor::randn({2, 6, 8}, generator, here_);
  const auto attended = attention(x).to_vector<float>(), masked = dropout(x).to_vector<float>();
  attention.to(there_);
  dropout.to(there_);
  EXPECT_EQ(attention(x.to(there_)).to_vector<float>(), attended);
  EXPECT_EQ(dropout(x.to(there_)).to_vector<float>(), masked);
  EXPECT_EQ(key->device(), there_);
}

/// Two parameters with one memory that are not one tensor.
class Overlapping final : public Module {
 public:
  Overlapping() {
    const Tensor whole = Tensor::zeros({6}, default_device());
    add_parameter("first", Tensor::zeros({2}, default_device()));
    add_parameter("second", whole.slice(0, 0, 3));
    add_parameter("third", whole.slice(0, 3, 6));
  }
  Tensor forward(const Tensor& x) override { return x; }
};

class Nothing final : public StorageHook {
 public:
  void materialize(Storage&) override {}
};

TEST_F(Moving, RefusesWhatCannotMoveAndChangesNothing) {
  Overlapping overlapping;
  EXPECT_THAT(message_of([&] { overlapping.to(there_); }), HasSubstr("\"third\" and \"second\" are views"));
  EXPECT_EQ(overlapping.named_parameters()[0].second.shared_device(), here_);

  Net bucketed;
  bucketed.named_parameters().back().second.set_grad_storage(Tensor::zeros({3}, here_));
  EXPECT_THAT(message_of([&] { bucketed.to(there_); }),
              testing::AllOf(HasSubstr("out.bias"), HasSubstr("move the network before")));
  EXPECT_EQ(bucketed.hidden.weight().shared_device(), here_);

  Net divided;
  divided.norm.named_buffers()[0].second.shared_storage()->set_hook(std::make_shared<Nothing>());
  EXPECT_THAT(message_of([&] { divided.to(there_); }), HasSubstr("norm.running_mean"));

  Tensor leaf = Tensor::ones({2}, here_);
  leaf.set_requires_grad(true);
  Tensor result = leaf * 2;
  EXPECT_THAT(message_of([&] { result.move_to(there_); }), HasSubstr("it was computed by"));
  EXPECT_THROW(Net().to(nullptr), UsageError);
}

}  // namespace
}  // namespace dtrain
