// Modules are printed as PyTorch prints them, start with its values under its names, and learn the same
// (make_golden.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "runtime/nn/embedding.h"
#include "runtime/nn/init.h"
#include "runtime/nn/print.h"
#include "runtime/nn/recurrent.h"
#include "runtime/nn/transformer/transformer_layers.h"
#include "runtime/nn/windows/resampling.h"
#include "tests/support/golden.h"

namespace dtrain {
namespace {

const test::Golden& recorded() {
  static const test::Golden kRecorded(DTRAIN_GOLDEN);
  return kRecorded;
}

class Net : public Module {
 public:
  Net() {
    add_module("conv1", std::make_shared<Conv2d>(3, 64, Conv2dSettings{.kernel = 3}));
    add_module("body", std::make_shared<Sequential>(std::vector<std::shared_ptr<Module>>{
                           std::make_shared<BatchNorm2d>(64), std::make_shared<ReLU>(),
                           std::make_shared<MaxPool2d>(2)}));
    const auto blocks = add_module("blocks", std::make_shared<ModuleList>());
    for (int i = 0; i < 3; ++i) blocks->append(std::make_shared<Linear>(4, 4));
    blocks->append(std::make_shared<Tanh>());
    add_module("fc", std::make_shared<Linear>(784, 10, LinearOptions{.bias = false}));
  }
  Tensor forward(const Tensor& x) override { return x; }
};

class Printed : public testing::Test {
 protected:
  void expect(const std::string& name, const Module& module) {
    EXPECT_EQ(to_string(module), recorded()["printed"][name].get<std::string>());
    ++count_;
  }
  std::shared_ptr<DropoutKey> key_ = std::make_shared<DropoutKey>(1, default_device());
  std::size_t count_ = 0;
};

TEST_F(Printed, IsWhatPyTorchPrints) {
  expect("Net", Net());
  expect("Conv1d", Conv1d(2, 4, {.kernel = 3, .padding = 1}));
  expect(
      "Conv2d",
      Conv2d(4, 8,
             {.kernel = {3, 5}, .stride = 2, .padding = {1, 2}, .dilation = 2, .groups = 2, .bias = false}));
  expect("Conv3d", Conv3d(2, 2, 3));
  expect("ConvTranspose1d", ConvTranspose1d(2, 4, {.kernel = 3, .stride = 2}));
  expect("ConvTranspose2d", ConvTranspose2d(2, 4, {.kernel = 3, .stride = 2, .output_padding = 1}));
  expect("ConvTranspose3d",
         ConvTranspose3d(4, 2,
                         {.kernel = {3, 2, 2}, .stride = 2, .padding = 1, .output_padding = 1, .groups = 2}));
  expect("MaxPool1d dilated", MaxPool1d(2, 0, 0, 3));
  expect("MaxPool2d dilated", MaxPool2d(3, 1, 1, {2, 1}));
  expect("MaxPool3d dilated", MaxPool3d({1, 2, 2}, 0, 0, 2));
  expect("Upsample bicubic", Upsample({.scale = {2}, .mode = InterpolateMode::bicubic}));
  expect("BatchNorm1d", BatchNorm1d(3));
  expect("BatchNorm3d", BatchNorm3d(3, default_device(), 1e-3, 0.01));
  expect("GroupNorm", GroupNorm(2, 4));
  expect("GroupNorm plain", GroupNorm(2, 4, default_device(), 1e-5, false));
  expect("InstanceNorm2d", InstanceNorm2d(4));
  expect("LayerNorm", LayerNorm({2, 3}, default_device(), 1e-6, false));
  expect("MaxPool2d", MaxPool2d({3, 2}, 2, 1));
  expect("AvgPool2d", AvgPool2d(2));
  expect("MaxPool1d", MaxPool1d(2));
  expect("AvgPool1d", AvgPool1d(3, 2, 1));
  expect("MaxPool3d", MaxPool3d(2));
  expect("AvgPool3d", AvgPool3d(2));
  expect("AdaptiveAvgPool1d", AdaptiveAvgPool1d(3));
  expect("AdaptiveAvgPool2d", AdaptiveAvgPool2d(1, 2));
  expect("Identity", Identity());
  expect("GELU", GELU());
  expect("LeakyReLU", LeakyReLU(0.2));
  expect("PReLU", PReLU(default_device(), 3));
  expect("Softplus", Softplus());
  expect("Softmax", Softmax(1));
  expect("Flatten", Flatten());
  expect("Dropout", Dropout(0.25, key_));
  expect("Dropout2d", Dropout2d(0.1, key_));
  Generator generator(1);
  expect("Embedding", Embedding(10, 3, generator, default_device(), {.padding_index = 0}));
  expect("LSTM",
         LSTM(3, 4, generator, default_device(), {.layers = 2, .batch_first = true, .bidirectional = true}));
  expect("GRU", GRU(3, 4));
  expect("Upsample", Upsample({.scale = {2}, .mode = InterpolateMode::linear}));
  expect("Upsample size", Upsample({.size = {3, 4}}));
  expect("ZeroPad2d", ZeroPad2d(1));
  expect("ConstantPad2d", ConstantPad2d({1, 2, 0, 1}, 0.5));
  expect("ReflectionPad1d", ReflectionPad1d(1));
  expect("ReplicationPad2d", ReplicationPad2d({1, 0, 2, 3}));
  expect("Sequential", Sequential(NamedModules{}));
  EXPECT_EQ(count_, recorded()["printed"].size());
}

TEST(Print, GoesToStreams) {
  std::ostringstream out;
  out << Linear(2, 3);
  EXPECT_EQ(out.str(), "Linear(in_features=2, out_features=3, bias=True)");
}

/// Values that were recorded as float32, within `tolerance` of the largest; 0: the same bits.
void expect_values(const Tensor& got, const std::vector<double>& expected, double tolerance,
                   const std::string& what) {
  const auto values = got.to_vector<double>();
  ASSERT_EQ(values.size(), expected.size()) << what;
  double largest = 0.1;
  for (const double value : expected) largest = std::max(largest, std::abs(value));
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_LE(std::abs(values[i] - expected[i]), tolerance * largest) << what << ", element " << i;
}

Tensors inputs(std::initializer_list<Dims> shapes) {
  Tensors drawn;
  for (const Dims& shape : shapes) {
    Generator generator(11 + drawn.size());
    drawn.push_back(Tensor::rand(shape, generator, default_device(), -1, 1));
  }
  return drawn;
}

void expect_learned(const std::string& name, Module& module, std::initializer_list<Dims> shapes) {
  SCOPED_TRACE(name);
  const test::Golden golden = recorded()["learned"][name];
  const NamedTensors state = module.state_dict();
  ASSERT_EQ(state.size(), golden["start"].size());
  for (std::size_t i = 0; i < state.size(); ++i) {
    const test::Golden expected = golden["start"][i];
    EXPECT_EQ(state[i].first, expected[0].get<std::string>());
    const Dims& shape = state[i].second.shape();
    EXPECT_EQ(std::vector<std::int64_t>(shape.begin(), shape.end()),
              expected[1].get<std::vector<std::int64_t>>());
    expect_values(state[i].second, expected[2].get<std::vector<double>>(), 0, state[i].first);
  }
  const Tensor y = module(inputs(shapes)).front();
  expect_values(y, golden["y"].get<std::vector<double>>(), 1e-5, "y");
  Generator generator(10);  // weights: behind a norm a plain sum of squares would have no gradient
  sum(mul(square(y), Tensor::rand(y.shape(), generator, default_device()))).backward();
  for (const auto& [parameter, tensor] : module.named_parameters())
    expect_values(tensor.grad(), golden["gradients"][parameter].get<std::vector<double>>(), 1e-5, parameter);
}

TEST(Learned, StartsAndLearnsAsInPyTorch) {
  manual_seed(7);
  MultiheadAttention attention(8, 2);
  expect_learned("MultiheadAttention", attention, {{5, 3, 8}, {6, 3, 8}, {6, 3, 8}});
  manual_seed(7);
  MultiheadAttention widths(8, 2, {.key_width = 6, .value_width = 3, .batch_first = true});
  expect_learned("MultiheadAttention widths", widths, {{3, 5, 8}, {3, 4, 6}, {3, 4, 3}});
  manual_seed(7);
  TransformerEncoderLayer encoder(8, 2, {.feed_forward = 16});
  expect_learned("TransformerEncoderLayer", encoder, {{5, 3, 8}});
  manual_seed(7);
  TransformerDecoderLayer decoder(
      8, 2, {.feed_forward = 16, .activation = FeedForwardActivation::gelu, .norm_first = true});
  expect_learned("TransformerDecoderLayer", decoder, {{5, 3, 8}, {4, 3, 8}});
  manual_seed(7);
  ConvTranspose1d transposed(4, 6, {.kernel = 3, .stride = 2, .groups = 2});
  expect_learned("ConvTranspose1d", transposed, {{2, 4, 5}});
  manual_seed(7);
  Conv3d volumes(2, 3, {.kernel = {1, 3, 2}, .bias = false});
  expect_learned("Conv3d", volumes, {{2, 2, 3, 4, 3}});
  BatchNorm1d batch1(4);
  expect_learned("BatchNorm1d", batch1, {{5, 4}});
  BatchNorm3d batch3(3);
  expect_learned("BatchNorm3d", batch3, {{2, 3, 2, 3, 2}});
  GroupNorm groups(2, 6);
  expect_learned("GroupNorm", groups, {{2, 6, 4}});
  InstanceNorm2d instances(3, default_device(), 1e-5, true);
  expect_learned("InstanceNorm2d", instances, {{2, 3, 4, 3}});
}

TEST(Initial, ValuesAreThoseOfPyTorch) {
  const auto expect = [](const std::string& name, double tolerance, const auto& fill) {
    manual_seed(3);
    Tensor tensor = Tensor::empty({6, 3, 3, 2}, default_device());
    tensor.set_requires_grad();  // a parameter
    fill(tensor);
    expect_values(tensor.detach(), recorded()["initial"][name].get<std::vector<double>>(), tolerance, name);
  };
  expect("uniform", 0, [](const Tensor& t) { init::uniform_(t, -2, 0.5); });
  expect("normal", 1e-6, [](const Tensor& t) { init::normal_(t, 1, 0.2); });
  expect("xavier_uniform", 0, [](const Tensor& t) { init::xavier_uniform_(t, 1.5); });
  expect("xavier_normal", 1e-6, [](const Tensor& t) { init::xavier_normal_(t); });
  expect("kaiming_uniform", 0, [](const Tensor& t) { init::kaiming_uniform_(t, {.negative_slope = 0.3}); });
  expect("kaiming_normal", 1e-6, [](const Tensor& t) {
    init::kaiming_normal_(t, {.fan = init::Fan::out, .nonlinearity = init::Nonlinearity::relu});
  });
}

TEST(Initial, ApplyGoesFromTheLeavesUp) {
  const auto first = std::make_shared<Linear>(4, 5), second = std::make_shared<Linear>(5, 4);
  Sequential net({first, std::make_shared<Sequential>(std::vector<std::shared_ptr<Module>>{second})});
  manual_seed(3);
  std::vector<const Module*> order;
  net.apply([&](Module& module) {
    order.push_back(&module);
    if (auto* const linear = dynamic_cast<Linear*>(&module)) init::xavier_uniform_(linear->weight());
  });
  const Tensor all = cat({first->weight().detach().flatten(), second->weight().detach().flatten()});
  expect_values(all, recorded()["applied"].get<std::vector<double>>(), 0, "weights");
  ASSERT_EQ(order.size(), 4U);
  EXPECT_EQ(order[0], first.get());
  EXPECT_EQ(order[1], second.get());
  EXPECT_EQ(order[3], &net);
}

}  // namespace
}  // namespace dtrain
