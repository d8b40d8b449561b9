// Frozen parameters: patterns of names, tied weights, what is left to learn, and an optimizer of both.
#include "runtime/nn/trainable.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/error.h"
#include "runtime/nn/containers.h"
#include "runtime/nn/embedding.h"
#include "runtime/nn/layers.h"
#include "runtime/optim/adamw.h"
#include "tests/support/message_of.h"

namespace dtrain {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class Tied final : public Module {
 public:
  explicit Tied(const Tensor& weight) { add_parameter("weight", weight); }
  Tensor forward(const Tensor& x) override { return x; }
};

class Network final : public Module {
 public:
  Network() {
    Generator generator(1);
    const auto device = make_device("cpu");
    body_ = add_module("body", std::make_shared<Linear>(3, 3, generator, device));
    add_module("body2", std::make_shared<Linear>(3, 3, generator, device));
    add_module("head", std::make_shared<Tied>(body_->own_parameters()[0].second));
  }
  Tensor forward(const Tensor& x) override { return (*body_)(x); }

 private:
  std::shared_ptr<Linear> body_;
};

std::vector<std::string> names_of(const NamedTensors& tensors) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors) names.push_back(name);
  return names;
}

std::vector<std::string> frozen_by(const std::vector<std::string>& patterns) {
  Network network;
  freeze(network, patterns);
  return names_of(frozen_parameters(network));
}

TEST(Freeze, TakesPatternsOfNames) {
  EXPECT_THAT(frozen_by({"body.*"}), ElementsAre("body.weight", "body.bias"));
  EXPECT_THAT(frozen_by({"*.bias"}), ElementsAre("body.bias", "body2.bias"));
  EXPECT_THAT(frozen_by({"body?.weight", "body.bias"}), ElementsAre("body.bias", "body2.weight"));
  Network network;
  EXPECT_THAT(freeze(network, std::vector<std::string>{"body2*"}), ElementsAre("body2.weight", "body2.bias"));
  EXPECT_THAT(names_of(trainable_parameters(network)), ElementsAre("body.weight", "body.bias"));
}

TEST(Freeze, TiedWeightsGoByAnyOfTheirNames) {
  EXPECT_THAT(frozen_by({"head.*"}), ElementsAre("body.weight"));
}

TEST(Freeze, RefusesAPatternThatMatchesNothing) {
  Network network;
  const std::string message = test::message_of([&] {
    freeze(network, std::vector<std::string>{"body.*", "backbone.*"});
  });
  EXPECT_THAT(message, HasSubstr("'backbone.*'"));
  EXPECT_THAT(message, HasSubstr("body.weight"));
  EXPECT_TRUE(frozen_parameters(network).empty()) << "nothing is changed then";
}

TEST(NamesThatMatch, AreThoseOfTiedWeightsTooAndOfNoneTheClosest) {
  const Network network;
  const NamedTensors all = parameters_by_all_names(network);
  EXPECT_THAT(names_that_match("--lr-of", "head.*", all), ElementsAre("head.weight", "body.weight"));
  EXPECT_THAT(names_that_match("--lr-of", "*.bias", all), ElementsAre("body.bias", "body2.bias"));
  const auto refusal = [&](const std::string& pattern) {
    return test::message_of([&] { names_that_match("--lr-of", pattern, all); });
  };
  EXPECT_THAT(refusal("haed.*"),
              HasSubstr("--lr-of: expected a pattern that matches a parameter, got 'haed.*'"));
  EXPECT_THAT(refusal("haed.*"), HasSubstr("did you mean 'head'?"));
  EXPECT_THAT(refusal("body.wieght"), HasSubstr("did you mean 'body.weight'?"));
}

// As torch.optim: what is frozen may be handed over, and weight decay leaves it alone.
TEST(Freeze, OptimizersLeaveTheFrozenAlone) {
  Network network;
  freeze(network, std::vector<std::string>{"body.weight"});
  AdamW optimizer(network.named_parameters(), {.lr = 0.1, .weight_decay = 0.5});
  const auto before = network.named_parameters()[0].second.to_vector<float>();
  sum(network(Tensor::ones({2, 3}, optimizer.parameters()[0].second.shared_device()))).backward();
  optimizer.step();
  EXPECT_EQ(network.named_parameters()[0].second.to_vector<float>(), before);
  EXPECT_THAT(names_of(optimizer.named_state()),
              ElementsAre("body.bias.exp_avg", "body.bias.exp_avg_sq", "body.bias.step"));
}

class Words final : public Module {
 public:
  Words() {
    Generator generator(1);
    const auto device = make_device("cpu");
    const auto embed = add_module("embed", std::make_shared<Embedding>(7, 4, generator, device));
    add_parameter("positions", Tensor::zeros({5, 4}, device));
    add_module("block", std::make_shared<Sequential>(std::vector<std::shared_ptr<Module>>{
                            std::make_shared<Linear>(4, 4, generator, device),
                            std::make_shared<Linear>(4, 1, generator, device),
                            std::make_shared<Linear>(1, 4, generator, device)}));
    add_module("conv", std::make_shared<Conv2d>(3, 2, Conv2dSettings{.kernel = 3}, generator, device));
    add_module("head", std::make_shared<Linear>(4, 7, generator, device));
    add_module("again", std::make_shared<Tied>(embed->weight()));
  }
  Tensor forward(const Tensor& x) override { return x; }
};

// Muon's: weights between hidden layers, of convolutions too; the rest is another rule's.
TEST(OuterParameters, AreAllButMatricesOfHiddenLayers) {
  const Words network;
  EXPECT_THAT(names_of_outer_parameters(network),
              testing::UnorderedElementsAre("positions", "embed.weight", "again.weight", "block.0.bias",
                                            "block.1.weight", "block.1.bias", "block.2.weight",
                                            "block.2.bias", "conv.bias", "head.bias"));
  Network small;  // its last module is tied to its first
  EXPECT_THAT(names_of_outer_parameters(small),
              testing::UnorderedElementsAre("body.weight", "head.weight", "body.bias", "body2.bias"));
}

}  // namespace
}  // namespace dtrain
