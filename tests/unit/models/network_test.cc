// Names and shapes as in PyTorch's state_dict, and refusals. Initial values are checked in tests/parity.
#include "models/vision/network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "models/tabular/impute.h"
#include "models/tabular/standardize.h"
#include "models/tasks/built_in.h"
#include "runtime/autograd/autocast.h"
#include "runtime/autograd/ops.h"
#include "runtime/nn/chain.h"

#include "runtime/base/error.h"
#include "tests/support/message_of.h"

namespace dtrain {
namespace {

using test::message_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string shapes(const Module& network) {
  std::string text;
  for (const auto& [name, tensor] : network.state_dict()) text += name + tensor.shape().to_string() + " ";
  return text;
}

class Networks : public ::testing::Test {
 protected:
  std::shared_ptr<Device> device_ = make_device("cpu");
  Generator generator_{0};
};

TEST_F(Networks, LeNet) {
  const auto network = make_network("lenet", {}, generator_, device_);
  EXPECT_EQ(shapes(*network),
            "conv1.weight[20, 1, 3, 3] conv1.bias[20] conv2.weight[50, 20, 5, 5] conv2.bias[50] "
            "fc1.weight[128, 800] "
            "fc1.bias[128] fc2.weight[10, 128] fc2.bias[10] ");
  EXPECT_EQ((*network)(Tensor::zeros({3, 1, 28, 28}, device_)).shape(), (Dims{3, 10}));
}

TEST_F(Networks, Mlp) {
  const auto network = make_network("mlp", {}, generator_, device_);
  EXPECT_EQ(shapes(*network),
            "fc1.weight[512, 784] fc1.bias[512] fc2.weight[512, 512] fc2.bias[512] fc3.weight[10, 512] "
            "fc3.bias[10] ");
  EXPECT_EQ((*network)(Tensor::zeros({3, 1, 28, 28}, device_)).shape(), (Dims{3, 10}));
}

TEST_F(Networks, LeNetFollowsTheInput) {
  const auto network =
      make_network("lenet", {.channels = 3, .height = 32, .width = 32, .classes = 7}, generator_, device_);
  EXPECT_EQ((*network)(Tensor::zeros({2, 3, 32, 32}, device_)).shape(), (Dims{2, 7}));
}

TEST_F(Networks, ResidualBlocksMayBeginAsTheirInput) {
  const std::vector<Field> fields = {{.name = "image", .shape = {3, 32, 32}},
                                     {.name = "label", .dtype = DType::i64, .values = 3}};
  for (const auto& [name, norm, blocks] :
       {std::tuple{"resnet18-imagenet", "bn2", 8}, {"resnet50", "bn3", 16}}) {
    for (const bool zero : {false, true}) {
      const auto network = Classification(name, {}, zero).build(fields, generator_, device_);
      int zeros = 0;
      for (const auto& [parameter, tensor] : network->named_parameters()) {
        const bool is_last = parameter.ends_with(std::string(norm) + ".weight");
        if (is_last) {
          EXPECT_EQ(sum(tensor).item(), zero ? 0 : static_cast<double>(tensor.numel())) << parameter;
        }
        zeros += is_last ? 1 : 0;
      }
      EXPECT_EQ(zeros, blocks) << name;
    }
  }
  EXPECT_THAT(message_of([&] { Classification("lenet", {}, true).build(fields, generator_, device_); }),
              AllOf(HasSubstr("lenet"), HasSubstr("a residual network")));
}

TEST_F(Networks, ClipsAreForNetworksThatTakeThem) {
  const NetworkInput clips = network_input({.name = "clip", .shape = {8, 3, 32, 32}}, 5);
  EXPECT_EQ(clips.frames, 8);
  const auto network = make_network("r3d-18", clips, generator_, device_);
  network->eval();
  EXPECT_EQ((*network)(Tensor::zeros({2, 8, 3, 32, 32}, device_)).shape(), (Dims{2, 5}));
  EXPECT_EQ(through(dynamic_cast<Chained&>(*network).chain(), Tensor::ones({2, 8, 3, 32, 32}, device_))
                .to_vector<float>(),
            (*network)(Tensor::ones({2, 8, 3, 32, 32}, device_)).to_vector<float>());
  EXPECT_THAT(message_of([&] { make_network("resnet18", clips, generator_, device_); }),
              AllOf(HasSubstr("got clips"), HasSubstr("r3d-18")));
  EXPECT_THAT(message_of([&] { make_network("r3d-18", {.channels = 3}, generator_, device_); }),
              AllOf(HasSubstr("expected clips"), HasSubstr("got images")));
  EXPECT_THAT(message_of([] {
                network_input({.name = "clip", .shape = {8, 32, 32, 3}}, 5);
              }),
              AllOf(HasSubstr("[T, H, W, C]"), HasSubstr("transpose(0, 1, 4, 2, 3)")));
}

// One of each kind. What a network joins or adds may come in two precisions: images and a layer's output.
TEST_F(Networks, TrainInBfloat16) {
  for (const std::string name :
       {"linear", "mlp", "lenet", "resnet18", "resnet18-imagenet", "inception-resnet-v2", "vit-small",
        "convnext-tiny", "r3d-18", "fcn-resnet50"}) {
    const bool clips = takes_clips(name);
    const std::int64_t extent = name == "inception-resnet-v2" ? 75 : 32;
    const NetworkInput input{
        .channels = 3, .height = extent, .width = extent, .classes = 4, .frames = clips ? 4 : 0};
    const Dims shape = clips ? Dims{2, 4, 3, extent, extent} : Dims{2, 3, extent, extent};
    const auto network = make_network(name, input, generator_, device_);
    LowPrecisionWeights weights;
    const Autocast autocast(Precision::bf16, weights);
    const Tensor y = (*network)(Tensor::rand(shape, generator_, device_, -1, 1));
    mean(square(y.to(DType::f32))).backward();
    for (const auto& [parameter, tensor] : network->named_parameters()) {
      ASSERT_TRUE(tensor.grad().defined()) << name << " " << parameter;
      EXPECT_EQ(tensor.grad().dtype(), DType::f32) << name << " " << parameter;
      EXPECT_TRUE(std::isfinite(sum(tensor.grad()).item())) << name << " " << parameter;
    }
  }
}

TEST_F(Networks, Refusals) {
  EXPECT_THROW(make_network("lenett", {}, generator_, device_), UsageError);
  EXPECT_THROW(make_network("lenet", {.height = 8}, generator_, device_), UsageError);
}

TEST_F(Networks, VectorsAreForNetworksThatTakeThem) {
  for (const char* name : {"lenet", "resnet18", "resnet50"}) {
    EXPECT_THAT(message_of([&] {
                  make_network(name, network_input({.name = "x", .shape = {4}}, 3), generator_, device_);
                }),
                AllOf(HasSubstr("got vectors of 4 numbers"), HasSubstr("mlp or linear")))
        << name;
  }
  EXPECT_NO_THROW(make_network("mlp", network_input({.name = "x", .shape = {4}}, 3), generator_, device_));
}

TEST_F(Networks, ColumnsThatHaveAMeanAreStandardizedFirst) {
  const Field field{.name = "x", .shape = {2}, .mean = {1, -20}, .deviation = {0.5F, 10}};
  for (const char* name : {"linear", "mlp"}) {
    Generator one(3), same(3);
    const auto plain = make_network(name, network_input({.name = "x", .shape = {2}}, 3), one, device_);
    const auto scaled = make_network(name, network_input(field, 3), same, device_);
    EXPECT_THAT(shapes(*scaled), HasSubstr("scale.mean[2] scale.deviation[2]"));
    EXPECT_EQ(scaled->named_parameters().size(), plain->named_parameters().size()) << "it is not learned";
    const Tensor raw = Tensor::from_data<float>({1, -20, 2, 0}, {2, 2}, device_);
    const Tensor standard = Tensor::from_data<float>({0, 0, 2, 2}, {2, 2}, device_);
    EXPECT_EQ((*scaled)(raw).to_vector<float>(), (*plain)(standard).to_vector<float>()) << name;
    if (const auto* const chained = dynamic_cast<const Chained*>(scaled.get())) {
      EXPECT_EQ(through(chained->chain(), raw).to_vector<float>(), (*scaled)(raw).to_vector<float>());
    }
  }
  EXPECT_THROW(Unstandardize(std::vector<float>{1}, std::vector<float>{-1}, device_), UsageError);
  EXPECT_THROW(Standardize(std::vector<float>{1, 2}, std::vector<float>{1}, device_), UsageError);
  EXPECT_THROW(Standardize(std::vector<float>{1, 2}, std::vector<float>{1, 0}, device_), UsageError);
}

TEST_F(Networks, ColumnsThatMayLackValuesAreFilledFirst) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Field field{.name = "x", .shape = {2}, .mean = {1, -20}, .deviation = {0.5F, 10}, .fill = {7, 9}};
  for (const char* name : {"linear", "mlp"}) {
    Generator one(3), same(3);
    Field whole = field;
    whole.fill.clear();
    const auto plain = make_network(name, network_input(whole, 3), one, device_);
    const auto filled = make_network(name, network_input(field, 3), same, device_);
    EXPECT_THAT(shapes(*filled), HasSubstr("fill.fill[2] scale.mean[2]"));
    EXPECT_EQ(filled->named_parameters().size(), plain->named_parameters().size()) << "it is not learned";
    const Tensor lacking = Tensor::from_data<float>({nan, -20, 2, nan}, {2, 2}, device_);
    const Tensor complete = Tensor::from_data<float>({7, -20, 2, 9}, {2, 2}, device_);
    EXPECT_EQ((*filled)(lacking).to_vector<float>(), (*plain)(complete).to_vector<float>()) << name;
    if (const auto* const chained = dynamic_cast<const Chained*>(filled.get())) {
      EXPECT_EQ(through(chained->chain(), lacking).to_vector<float>(), (*filled)(lacking).to_vector<float>());
    }
  }
  EXPECT_THROW(Impute(std::vector<float>{}, device_), UsageError);
  EXPECT_THROW(Impute(std::vector<float>{1, nan}, device_), UsageError);
}

TEST_F(Networks, NumbersAreGivenInTheirUnitsAndLearnedInDeviations) {
  const std::vector<float> mean = {200'000, 0.5F}, deviation = {1000, 0.01F};
  const std::vector<Field> fields = {{.name = "x", .shape = {3}},
                                     {.name = "y", .shape = {2}, .mean = mean, .deviation = deviation}};
  for (const char* name : {"linear", "mlp"}) {
    Generator one(3), same(3);
    const auto plain = make_task("regression", name)
                           ->build(std::vector{fields[0], Field{.name = "y", .shape = {2}}}, one, device_);
    const auto units = make_task("regression", name)->build(fields, same, device_);
    const Tensor x = Tensor::from_data<float>({1, 2, 3, -1, 0, 1}, {2, 3}, device_);
    const Tensor standard = (*plain)(x), given = (*units)(x);
    const auto from = standard.to_vector<float>(), to = given.to_vector<float>();
    for (std::size_t i = 0; i < 4; ++i) EXPECT_FLOAT_EQ(to[i], from[i] * deviation[i % 2] + mean[i % 2]);
    // Twice the error, by two: as of a loss that is measured in deviations.
    const Tensor y = Tensor::from_data<float>({201'000, 0.51F, 199'000, 0.49F}, {2, 2}, device_);
    const Tensor y_standard = Tensor::from_data<float>({1, 1, -1, -1}, {2, 2}, device_);
    mse_loss(given, y).backward();
    mse_loss(standard, y_standard).backward();
    const NamedTensors expected = plain->named_parameters(), got = units->named_parameters();
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const auto a = expected[i].second.grad().to_vector<float>(),
                 b = got[i].second.grad().to_vector<float>();
      for (std::size_t k = 0; k < a.size(); ++k) EXPECT_NEAR(a[k], b[k], 2e-3) << expected[i].first;
    }
    if (const auto* const chained = dynamic_cast<const Chained*>(units.get())) {
      EXPECT_EQ(through(chained->chain(), x).to_vector<float>(), to);
    }
  }
}

TEST_F(Networks, ImagesThatLieChannelsLastAreRefused) {
  EXPECT_THAT(message_of([&] {
                network_input({.name = "image", .shape = {32, 32, 3}}, 10);
              }),
              AllOf(HasSubstr("image float32 [32, 32, 3]"), HasSubstr("transpose(0, 3, 1, 2)")));
  EXPECT_EQ(network_input({.name = "image", .shape = {3, 32, 4}}, 10).channels, 3);
  EXPECT_EQ(network_input({.name = "image", .shape = {32, 3, 3}}, 10).channels, 32) << "maps of features";
}

TEST_F(Networks, WhatIsLearnedIsNotFed) {
  const std::vector<Field> fields = {{.name = "y", .shape = {1}},
                                     {.name = "label", .dtype = DType::i64, .values = 3},
                                     {.name = "x", .shape = {4}}};
  for (const char* task : {"regression", "classification"}) {
    const auto learned = make_task(task, "linear");
    EXPECT_EQ(input_field(*learned, fields).name, "x") << task;
    EXPECT_THAT(shapes(*learned->build(fields, generator_, device_)), HasSubstr(", 4]")) << task;
    EXPECT_THAT(message_of([&] { learned->build(std::span(fields).first(2), generator_, device_); }),
                HasSubstr("a field to feed"));
  }
}

}  // namespace
}  // namespace dtrain
