// From options to a config: batches, learning rates, defaults, and refusals that name the option.
#include "training/options/train_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/autograd/ops.h"
#include "runtime/base/error.h"
#include "runtime/nn/init.h"

namespace dtrain {
namespace {

TrainConfig config(const std::vector<std::string>& arguments, std::int64_t world = 1) {
  return make_train_config(resolve_options("dtrain train", train_options(), arguments, {}), "lenet", world);
}

template <class Rule>
Rule rule(const std::vector<std::string>& arguments) {
  return std::get<Rule>(config(arguments).optimizer.rule);
}

double lr(const std::vector<std::string>& arguments, std::int64_t world = 1) {
  return lr_of(config(arguments, world).optimizer.rule);
}

TEST(TrainConfig, GlobalBatchIsSharedOverWorkersAndPasses) {
  const BatchPlan batch = config({"--global-batch-size=96", "--accumulate=2"}, 3).batch;
  EXPECT_EQ(batch.per_worker, 16);
  EXPECT_EQ(batch.global, 96);
  EXPECT_EQ(config({"--batch-size=16", "--accumulate=2"}, 3).batch.global, 96);
  EXPECT_EQ(config({}, 2).batch.global, 256);
  EXPECT_EQ(config({"--global-batch-size=97"}, 3).batch.per_worker, 33);  // 33, 32 and 32
  EXPECT_EQ(config({"--global-batch-size=97"}, 3).batch.global, 97);
  EXPECT_THROW(config({"--global-batch-size=97", "--accumulate=2"}, 3), UsageError);
  EXPECT_THROW(config({"--global-batch-size=2"}, 3), UsageError);
  EXPECT_THROW(config({"--global-batch-size=96", "--batch-size=32"}), UsageError);
}

TEST(TrainConfig, InitialWeightsAreDrawnAsTorchNnInitDoes) {
  const auto device = make_device("cpu");
  const auto drawn = [&](const std::string& how) {
    const WeightInit init = config({"--init", how}).init;
    Generator generator(5);
    Tensor weight = Tensor::zeros({20, 30}, device);
    init(weight, generator);
    return weight.to_vector<float>();
  };
  const auto expected = [&](const auto& write) {
    Generator generator(5);
    Tensor weight = Tensor::zeros({20, 30}, device);
    write(weight, generator);
    return weight.to_vector<float>();
  };
  EXPECT_EQ(drawn("normal:0.01"), expected([](Tensor& w, Generator& g) { init::normal_(w, 0, 0.01, g); }));
  EXPECT_EQ(drawn("uniform:0.5"), expected([](Tensor& w, Generator& g) { init::uniform_(w, -0.5, 0.5, g); }));
  EXPECT_EQ(drawn("xavier-uniform"),
            expected([](Tensor& w, Generator& g) { init::xavier_uniform_(w, 1, g); }));
  EXPECT_EQ(drawn("xavier-normal"), expected([](Tensor& w, Generator& g) { init::xavier_normal_(w, 1, g); }));
  EXPECT_EQ(drawn("kaiming-uniform"),
            expected([](Tensor& w, Generator& g) { init::kaiming_uniform_(w, {}, g); }));
  EXPECT_EQ(drawn("kaiming-normal"),
            expected([](Tensor& w, Generator& g) { init::kaiming_normal_(w, {}, g); }));
  for (const char* how :
       {"normal", "normal:", "normal:-1", "normal:inf", "normal:x", "xavier", "xavier-uniform:1", ""})
    EXPECT_THROW(config({"--init", how}), UsageError) << how;
  EXPECT_THROW(config({"--init=normal:0.01", "--init-from=w.safetensors"}), UsageError);
  EXPECT_TRUE(config({"--init=normal:0.01", "--init-from=w.safetensors", "--init-partial"}).init);
  EXPECT_FALSE(config({}).init);
}

TEST(TrainConfig, LearningRateScalesWithTheBatch) {
  EXPECT_DOUBLE_EQ(lr({"--lr=0.1", "--global-batch-size=1024", "--scale-lr=linear"}), 0.4);
  EXPECT_DOUBLE_EQ(lr({"--lr=0.1", "--global-batch-size=1024", "--scale-lr=sqrt"}), 0.2);
  EXPECT_DOUBLE_EQ(lr({"--lr=0.1", "--batch-size=256", "--scale-lr=linear", "--base-batch-size=512"}, 4),
                   0.2);
}

TEST(TrainConfig, DefaultsDependOnTheOptimizer) {
  EXPECT_EQ(rule<SgdOptions>({}).weight_decay, 0);
  EXPECT_EQ(rule<AdamWOptions>({"--optimizer=adamw"}).weight_decay, 1e-2);
  EXPECT_EQ(rule<AdamOptions>({"--optimizer=adam"}).weight_decay, 0);
  EXPECT_EQ(lr({"--optimizer=adamw"}), 1e-3);
  EXPECT_EQ(lr({"--optimizer=rmsprop"}), 1e-2);
  EXPECT_EQ(rule<AdamWOptions>({"--optimizer=adamw", "--betas=0.8,0.95"}).beta2, 0.95);
  EXPECT_EQ(rule<AdamWOptions>({"--optimizer=adamw"}).beta2, 0.999);
  EXPECT_EQ(rule<LionOptions>({"--optimizer=lion"}).beta2, 0.99);
  EXPECT_EQ(rule<LionOptions>({"--optimizer=lion", "--betas=0.95,0.98", "--lr=3e-4"}).beta2, 0.98);
  EXPECT_EQ(lr({"--optimizer=lion"}), 1e-4);
  EXPECT_EQ(rule<RmsPropOptions>({"--optimizer=rmsprop"}).eps, 1e-8);
  const MuonOptions muon = rule<MuonOptions>({"--optimizer=muon"});
  EXPECT_EQ(muon.lr, 1e-3);
  EXPECT_EQ(muon.momentum, 0.95);
  EXPECT_EQ(muon.weight_decay, 0.1);
  EXPECT_EQ(muon.scale, MuonScale::match_rms_adamw);
  EXPECT_EQ(muon.beta2, 0.95);
  EXPECT_EQ(rule<AdagradOptions>({"--optimizer=adagrad"}).eps, 1e-10);
}

TEST(TrainConfig, OptimizersTakeTheirOptions) {
  const auto rmsprop =
      rule<RmsPropOptions>({"--optimizer=rmsprop", "--alpha=0.9", "--momentum=0.5", "--centered"});
  EXPECT_EQ(rmsprop.alpha, 0.9);
  EXPECT_EQ(rmsprop.momentum, 0.5);
  EXPECT_TRUE(rmsprop.centered);
  const auto adagrad =
      rule<AdagradOptions>({"--optimizer=adagrad", "--lr-decay=0.1", "--initial-accumulator=0.5"});
  EXPECT_EQ(adagrad.lr_decay, 0.1);
  EXPECT_EQ(adagrad.initial_accumulator_value, 0.5);
}

TEST(TrainConfig, MuonTakesItsOptions) {
  const MuonOptions muon =
      rule<MuonOptions>({"--optimizer=muon", "--lr=0.02", "--momentum=0", "--muon-scale=original",
                         "--betas=0.8,0.9", "--eps=1e-6", "--weight-decay=0"});
  EXPECT_EQ(muon.lr, 0.02);
  EXPECT_EQ(muon.momentum, 0);  // given, though it is what other rules have by default
  EXPECT_EQ(muon.scale, MuonScale::original);
  EXPECT_EQ(muon.beta1, 0.8);
  EXPECT_EQ(muon.adam_eps, 1e-6);
  EXPECT_EQ(muon.weight_decay, 0);
  EXPECT_THAT(config({"--optimizer=muon", "--adamw-for=a.*,b"}).optimizer.adamw_for,
              testing::ElementsAre("a.*", "b"));
}

TEST(TrainConfig, GradientsAreLimitedWhereAsked) {
  EXPECT_FALSE(config({}).optimizer.limits.norm);
  const GradientLimits limits = config({"--clip-grad-norm=1.5", "--clip-grad-value=0.1"}).optimizer.limits;
  EXPECT_EQ(limits.norm, 1.5);
  EXPECT_EQ(limits.value, 0.1);
}

/// Each optimizer makes groups of its own; their decay shows in what a step without gradient signal does.
TEST(TrainConfig, VectorsAreLeftOutOfWeightDecayWhereAsked) {
  for (const char* name : {"sgd", "adam", "adamw", "rmsprop", "adagrad"}) {
    for (const bool all : {true, false}) {
      const auto device = make_device("cpu");
      NamedTensors parameters = {{"weight", Tensor::full({2, 2}, 1, device)},
                                 {"bias", Tensor::full({2}, 1, device)}};
      for (auto& [_, parameter] : parameters) parameter.set_requires_grad(true);
      const auto optimizer =
          make_optimizer(config({std::string("--optimizer=") + name, "--weight-decay=0.5",
                                 all ? "--weight-decay-on=all" : "--weight-decay-on=matrices"})
                             .optimizer,
                         parameters, {.vectors = names_of_vectors(parameters)});
      for (const auto& [_, parameter] : parameters) sum(mul(parameter, 0.0)).backward();
      optimizer->step();
      EXPECT_LT(parameters[0].second.to_vector<float>()[0], 1) << name;
      EXPECT_EQ(parameters[1].second.to_vector<float>()[0] < 1, all) << name;
    }
  }
}

/// The rate and the decay that a step shows: with a gradient of 1, SGD subtracts lr · (1 + decay · weight).
std::vector<float> moved(const std::vector<std::string>& arguments, const OwnOptionsByName& own) {
  const auto device = make_device("cpu");
  NamedTensors parameters;
  for (const char* name : {"body.weight", "body.bias", "head.weight", "head.bias"})
    parameters.emplace_back(
        name, Tensor::full(std::string(name).ends_with("bias") ? Dims{1} : Dims{1, 1}, 1, device));
  for (auto& [_, parameter] : parameters) parameter.set_requires_grad(true);
  const auto optimizer =
      make_optimizer(config(arguments).optimizer, parameters, {.vectors = names_of_vectors(parameters)}, own);
  for (const auto& [_, parameter] : parameters) sum(parameter).backward();
  optimizer->step();
  std::vector<float> by;
  for (const auto& [_, parameter] : parameters) by.push_back(1 - parameter.to_vector<float>()[0]);
  return by;
}

TEST(TrainConfig, ParametersHaveOptionsOfTheirOwn) {
  using testing::FloatNear;
  const auto are = [](float a, float b, float c, float d) {
    return testing::ElementsAre(FloatNear(a, 1e-6F), FloatNear(b, 1e-6F), FloatNear(c, 1e-6F),
                                FloatNear(d, 1e-6F));
  };
  EXPECT_THAT(moved({"--lr=0.1"}, {}), are(0.1F, 0.1F, 0.1F, 0.1F));
  EXPECT_THAT(moved({"--lr=0.1"}, {{"head.weight", {.lr = 0.3, .weight_decay = {}}}}),
              are(0.1F, 0.1F, 0.3F, 0.1F));
  EXPECT_THAT(
      moved({"--lr=0.1", "--weight-decay=1", "--weight-decay-on=matrices"},
            {{"head.weight", {.lr = 0.3, .weight_decay = {}}}, {"head.bias", {.lr = {}, .weight_decay = 2}}}),
      are(0.2F, 0.1F, 0.6F, 0.3F));
  EXPECT_THAT(moved({"--lr=0.1"}, {{"body.bias", {.lr = 0, .weight_decay = {}}}}), are(0.1F, 0, 0.1F, 0.1F));
}

TEST(TrainConfig, GroupsAreReadInOrderAndScaledAsTheRate) {
  const auto groups = config({"--lr-of=head.*=0.5,*.bias=0", "--weight-decay-of=body.*=0.25",
                              "--scale-lr=linear", "--global-batch-size=512"})
                          .optimizer.groups;
  ASSERT_EQ(groups.size(), 3U);
  EXPECT_EQ(groups[0].names, "head.*");
  EXPECT_EQ(groups[0].lr, 1.0);
  EXPECT_EQ(groups[1].lr, 0.0);
  EXPECT_EQ(groups[2].names, "body.*");
  EXPECT_EQ(groups[2].weight_decay, 0.25);
  for (const char* bad : {"head.*", "head.*=", "=0.1", "head.*=-1", "head.*=inf", "head.*=nan", ",head.*=1"})
    EXPECT_THROW(config({std::string("--lr-of=") + bad}), UsageError) << bad;
}

TEST(TrainConfig, LengthIsEpochsUnlessOnlyStepsAreGiven) {
  EXPECT_EQ(config({}).epochs, 10);
  EXPECT_EQ(make_schedule(config({"--max-steps=40"}), 235).total_steps, 40);
  EXPECT_EQ(make_schedule(config({"--max-steps=40", "--epochs=2"}), 235).total_steps, 470);
}

TEST(TrainConfig, RefusesWhatCannotBe) {
  for (const char* bad :
       {"--betas=0.9", "--betas=0.9,1", "--nesterov", "--lr-schedule=step", "--lr=-1", "--precision=fp8",
        "--epochs=-1", "--accumulate=0", "--collective-timeout=0", "--optimizer=adan", "--trace-steps=1:2",
        "--clip-grad-norm=-1", "--weight-decay-on=biases"}) {
    EXPECT_THROW(config({bad}), UsageError) << bad;
  }
}

TEST(TrainConfig, TraceNamesAFileAndMayNameSteps) {
  EXPECT_FALSE(config({}).trace);
  EXPECT_FALSE(config({"--trace=auto"}).trace->first_step);
  EXPECT_FALSE(config({"--trace=auto"}).trace->file);
  const auto trace = config({"--trace=t.json", "--trace-steps=100:105"}).trace;
  EXPECT_EQ(trace->file, "t.json");
  EXPECT_EQ(trace->first_step, 100);
  EXPECT_EQ(trace->last_step, 105);
  for (const char* bad : {"5", "0:3", "4:3", ":", "a:b", "1:2:3", ""}) {
    EXPECT_THROW(config({"--trace=auto", std::string("--trace-steps=") + bad}), UsageError) << bad;
  }
}

}  // namespace
}  // namespace dtrain
