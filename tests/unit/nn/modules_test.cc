// Containers, modules of several inputs, recomputation of both kinds, embedding, norms and recurrent layers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/base/error.h"
#include "runtime/nn/embedding.h"
#include "runtime/nn/layers.h"
#include "runtime/nn/norms.h"
#include "runtime/nn/recurrent.h"
#include "tests/support/message_of.h"

namespace dtrain {
namespace {

using Names = std::vector<std::string>;

Names names_of(const NamedTensors& tensors) {
  Names names;
  for (const auto& [name, tensor] : tensors) names.push_back(name);
  return names;
}

/// a · w and, if it is there, + b: two results of one or two inputs.
class Mix : public MultiModule {
 public:
  explicit Mix(const std::shared_ptr<Device>& device) {
    weight_ = add_parameter("weight", Tensor::full({3}, 2, device));
  }
  Tensors forward_all(const Tensors& inputs) override {
    ++runs;
    check_inputs("Mix", inputs, 1, 2);
    const Tensor product = tanh(inputs[0] * weight_);
    const bool both = inputs.size() == 2 && inputs[1].defined();
    return {both ? product + inputs[1] : product, square(product)};
  }
  int runs = 0;

 private:
  Tensor weight_;
};

class ModulesTest : public testing::Test {
 protected:
  Tensor leaf(const Dims& shape) {
    Tensor tensor = Tensor::rand(shape, generator_, device_, -1, 1);
    tensor.set_requires_grad(true);
    return tensor;
  }
  std::shared_ptr<Device> device_ = make_device("cpu");
  Generator generator_{0};
};

TEST_F(ModulesTest, SequentialShowsItsParts) {
  const auto first = std::make_shared<Linear>(4, 3, generator_, device_);
  const auto second = std::make_shared<Linear>(3, 2, generator_, device_);
  Sequential net(NamedModules{{"fc1", first}, {"act", std::make_shared<ReLU>()}, {"fc2", second}});
  EXPECT_EQ(names_of(net.named_parameters()), (Names{"fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"}));
  ASSERT_EQ(net.children().size(), 3U);
  EXPECT_EQ(net.children()[1].first, "act");
  const Tensor x = leaf({5, 4});
  Tensor by_parts = x;
  for (const auto& [name, part] : net.children()) by_parts = (*part)(by_parts);
  EXPECT_EQ(by_parts.to_vector<float>(), net(x).to_vector<float>());
  EXPECT_THROW(net(Tensors{x, x}), UsageError);
}

TEST_F(ModulesTest, ModuleListKeepsModules) {
  ModuleList list({std::make_shared<Linear>(2, 2, generator_, device_)});
  list.append(std::make_shared<Linear>(2, 1, generator_, device_));
  EXPECT_EQ(names_of(list.named_parameters()), (Names{"0.weight", "0.bias", "1.weight", "1.bias"}));
  EXPECT_EQ(list[1](leaf({3, 2})).shape(), (Dims{3, 1}));
  EXPECT_THROW(list[2], UsageError);
  EXPECT_THROW(list(leaf({3, 2})), UsageError);
}

TEST_F(ModulesTest, SeveralInputsAndResults) {
  const auto mix = std::make_shared<Mix>(device_);
  const Tensor a = leaf({3}), b = leaf({3});
  EXPECT_EQ((*mix)(Tensors{a, b}).size(), 2U);
  EXPECT_EQ((*mix)(a).to_vector<float>(), (*mix)(Tensors{a, Tensor()})[0].to_vector<float>());
  EXPECT_THROW((*mix)(Tensors{}), UsageError);
  EXPECT_THROW((*mix)(Tensors{Tensor(), b}), UsageError);
  EXPECT_THROW((*mix)(Tensors{a, b, b}), UsageError);
  Sequential chain({mix, mix});  // hands both results on
  EXPECT_EQ(chain(Tensors{a, b}).size(), 2U);
}

TEST_F(ModulesTest, SeveralResultsAreRecomputedOnce) {
  Mix mix(device_);
  Tensor a = leaf({3}), b = leaf({3});
  const auto run = [&] {
    for (Tensor tensor : {a, b}) tensor.zero_grad();
    mix.zero_grad();
    const Tensors results = mix(Tensors{a, b});
    sum(results[0] * results[1]).backward();
    std::vector<float> all = a.grad().to_vector<float>();
    for (const Tensor& tensor : {b, mix.named_parameters()[0].second}) {
      for (const float value : tensor.grad().to_vector<float>()) all.push_back(value);
    }
    return all;
  };
  const auto expected = run();
  mix.set_recompute();
  mix.runs = 0;
  EXPECT_EQ(run(), expected);
  EXPECT_EQ(mix.runs, 2);
  // One result alone, and an input that is not there.
  a.zero_grad();
  const Tensors results = mix(Tensors{a, Tensor()});
  sum(results[1]).backward();
  const auto alone = a.grad().to_vector<float>();
  mix.set_recompute(false);
  a.zero_grad();
  sum(mix(Tensors{a})[1]).backward();
  EXPECT_EQ(a.grad().to_vector<float>(), alone);
}

TEST_F(ModulesTest, TiedWeightsComeOnce) {
  class Tied : public Module {
   public:
    Tied(Generator& generator, const std::shared_ptr<Device>& device) {
      table_ = add_module("table", std::make_shared<Embedding>(5, 3, generator, device));
      head_ = add_parameter("head", table_->named_parameters()[0].second);
    }
    Tensor forward(const Tensor& x) override { return linear((*table_)(x), head_, {}); }

   private:
    std::shared_ptr<Embedding> table_;
    Tensor head_;
  };
  Tied net(generator_, device_);
  EXPECT_EQ(names_of(net.named_parameters()), (Names{"head"}));
  EXPECT_EQ(names_of(net.state_dict()), (Names{"head", "table.weight"}));
  EXPECT_EQ(net.parameter_count(), 15);
}

TEST_F(ModulesTest, EmbeddingStartsAsPyTorchs) {
  Generator one(3), two(3);
  Embedding table(4, 5, one, device_, {.padding_index = 2});
  const auto rows = table.named_parameters()[0].second.to_vector<float>();
  auto expected = Tensor::randn({4, 5}, two, device_).to_vector<float>();
  std::fill(expected.begin() + 10, expected.begin() + 15, 0.0F);
  EXPECT_EQ(rows, expected);
  EXPECT_THROW(Embedding(4, 5, one, device_, {.padding_index = 4}), UsageError);
  EXPECT_THROW(Embedding(0, 5, one, device_), UsageError);
}

TEST_F(ModulesTest, NormsAreNamedAsInPyTorch) {
  LayerNorm layer({2, 3}, device_), plain({3}, device_, 1e-5, false);
  RMSNorm rms({3}, device_);
  EXPECT_EQ(names_of(layer.named_parameters()), (Names{"weight", "bias"}));
  EXPECT_EQ(names_of(plain.named_parameters()), (Names{"weight"}));
  const Tensor x = leaf({4, 2, 3});
  EXPECT_NEAR(mean(layer(x)).item(), 0, 1e-6);
  EXPECT_NEAR(mean(square(rms(x))).item(), 1, 1e-5);
}

TEST_F(ModulesTest, RecurrentParametersAreNamedAsInPyTorch) {
  LSTM lstm(2, 3, generator_, device_, {.layers = 2, .bidirectional = true});
  const NamedTensors parameters = lstm.named_parameters();
  ASSERT_EQ(parameters.size(), 16U);
  EXPECT_EQ(parameters[0].first, "weight_ih_l0");
  EXPECT_EQ(parameters[3].first, "bias_hh_l0");
  EXPECT_EQ(parameters[4].first, "weight_ih_l0_reverse");
  EXPECT_EQ(parameters[8].first, "weight_ih_l1");
  EXPECT_EQ(parameters[8].second.shape(), (Dims{12, 6}));
  const float bound = 1.0F / std::sqrt(3.0F);
  for (const auto& [name, tensor] : parameters) {
    for (const float value : tensor.to_vector<float>()) EXPECT_LE(std::abs(value), bound);
  }
}

TEST_F(ModulesTest, RecurrentLayersCheckTheirInputs) {
  GRU gru(2, 3, generator_, device_);
  const Tensor x = leaf({4, 5, 2});
  EXPECT_EQ(gru(x).shape(), (Dims{4, 5, 3}));
  EXPECT_THROW(gru(leaf({4, 5, 3})), UsageError);
  EXPECT_THROW(gru(leaf({4})), UsageError);
  EXPECT_THROW(gru(Tensors{x, leaf({1, 4, 3})}), UsageError);
  EXPECT_THROW(gru(Tensors{x, leaf({1, 5, 3}), x}), UsageError);
  EXPECT_THROW(GRU(2, 0, generator_, device_), UsageError);
  // A state in between does not change the sequence's results but for rounding: products of other numbers of
  // rows may be another kernel's.
  const Tensors whole = gru(Tensors{x}), first = gru(Tensors{x.slice(0, 0, 2)});
  const Tensors second = gru(Tensors{x.slice(0, 2, 4), first[1]});
  const auto is_near = [](const Tensor& expected) {
    return testing::Pointwise(testing::FloatNear(1e-6F), expected.to_vector<float>());
  };
  EXPECT_THAT(second[0].to_vector<float>(), is_near(whole[0].slice(0, 2, 4)));
  EXPECT_THAT(second[1].to_vector<float>(), is_near(whole[1]));
}

TEST_F(ModulesTest, RecurrentDropoutIsBetweenLayersAndGoesBySample) {
  const auto key = std::make_shared<DropoutKey>(1, device_);
  key->set_step(0);
  RecurrentOptions options{.layers = 2, .dropout = 0.5, .dropout_key = key};
  GRU gru(2, 3, generator_, device_, options);
  EXPECT_EQ(gru.children().size(), 1U);
  EXPECT_EQ(gru.named_parameters().size(), 8U);
  const Tensor x = leaf({4, 2, 2});
  const Tensor whole = gru(x);
  const auto swapped = Tensor::from_data({std::int64_t{1}, std::int64_t{0}}, {2}, device_);
  key->set_rows(swapped);
  EXPECT_EQ(gru(x.index_select(1, swapped)).index_select(1, swapped).to_vector<float>(),
            whole.to_vector<float>());
  gru.eval();
  EXPECT_NE(gru(x).to_vector<float>(), whole.to_vector<float>());
  options.dropout_key = nullptr;
  EXPECT_THROW(GRU(2, 3, generator_, device_, options), UsageError);
}

// PyTorch's numbers are in tests/operations; here: NaN behind the ends reaches nothing, not even gradients.
TEST_F(ModulesTest, PaddingIsNotLookedAt) {
  LSTM lstm(2, 3, generator_, device_, {.layers = 2, .batch_first = true, .bidirectional = true});
  const std::vector<std::int64_t> lengths{2, 4, 1};
  const auto padded_with = [&](double padding) {
    Generator same(4);
    const Tensor values = Tensor::randn({3, 5, 2}, same, device_);
    for (std::int64_t row = 0; row < 3; ++row)
      values.select(0, row).slice(0, lengths[static_cast<std::size_t>(row)], 5).fill(padding);
    return Tensor(values).set_requires_grad(true);
  };
  const auto numbers = [&](double padding) {
    lstm.zero_grad();
    const Tensor x = padded_with(padding);
    const Tensors results = lstm.forward_packed({x}, lengths);
    EXPECT_EQ(results[0].shape(), (Dims{3, 5, 6}));
    EXPECT_EQ(results[0].select(0, 0).slice(0, 2, 5).to_vector<float>(), std::vector<float>(18, 0.0F));
    (sum(square(results[0])) + sum(results[2])).backward();
    std::vector<float> all = x.grad().to_vector<float>();
    for (const auto& [name, parameter] : lstm.named_parameters()) {
      const auto values = parameter.grad().to_vector<float>();
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  };
  const std::vector<float> expected = numbers(0);
  EXPECT_EQ(numbers(std::nan("")), expected);
  EXPECT_THAT(expected, testing::Each(testing::Truly([](float value) { return std::isfinite(value); })));
}

TEST_F(ModulesTest, LengthsAreCheckedAndDropoutKeepsItsMasks) {
  const auto key = std::make_shared<DropoutKey>(3, device_);
  RecurrentOptions options{.layers = 2, .dropout = 0.5, .dropout_key = key};
  GRU gru(2, 3, generator_, device_, options);
  key->set_step(1);
  const Tensor x = Tensor::randn({4, 2, 2}, generator_, device_);
  // A row that is full has the numbers that it has without lengths.
  const Tensors whole = gru(Tensors{x}), packed = gru.forward_packed({x}, {3, 4});
  for (const int result : {0, 1}) {
    const auto expected = whole[static_cast<std::size_t>(result)].select(1, 1).to_vector<float>();
    EXPECT_THAT(packed[static_cast<std::size_t>(result)].select(1, 1).to_vector<float>(),
                testing::Pointwise(testing::FloatNear(1e-6F), expected));
  }
  const auto message = [&](const Tensor& lengths) {
    return test::message_of([&] { gru.forward_packed({x}, lengths); });
  };
  EXPECT_THAT(message(Tensor::from_data<std::int64_t>({4, 0}, {2}, device_)),
              testing::HasSubstr("GRU: expected lengths of 1 to 4, got 0 for sequence 1"));
  EXPECT_THAT(message(Tensor::from_data<std::int64_t>({5, 1}, {2}, device_)), testing::HasSubstr("got 5"));
  EXPECT_THAT(message(Tensor::from_data<std::int64_t>({4}, {1}, device_)),
              testing::HasSubstr("the lengths of 2 sequences as int64 [2], got int64 [1]"));
  EXPECT_THAT(message(Tensor::ones({2}, device_)), testing::HasSubstr("got float32 [2]"));
}

}  // namespace
}  // namespace dtrain
