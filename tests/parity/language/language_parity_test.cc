// GPT-2, LLaMA, Qwen2 and BERT compute what transformers computes from the same published weights: logits,
// gradients and the losses of training, step for step (make_golden.py); and weights come out as they went in.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "models/text/bert.h"
#include "models/text/transformer.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/autograd/ops.h"
#include "runtime/optim/adamw.h"
#include "tests/parity/language/recorded_model.h"
#include "tests/support/message_of.h"

namespace dtrain {
namespace {

using test::RecordedModel;
using test::relative_difference;

class LanguageParity : public testing::TestWithParam<std::string> {
 protected:
  LanguageParity() : recorded_(GetParam()), format_(*published_format(recorded_.model())) {}

  /// The network with the recorded weights, read from a folder.
  std::unique_ptr<Module> loaded() const {
    Generator generator(3);
    const TextModel& model = recorded_.model();
    std::unique_ptr<Module> network;
    if (is_bert()) {
      network = std::make_unique<Bert>(model.shape, model.heads, generator, recorded_.device());
    } else {
      network = std::make_unique<Transformer>(model.shape, generator, recorded_.device());
    }
    load_published(*network, PublishedWeights::open(folder_), format_, GetParam());
    return network;
  }
  bool is_bert() const { return recorded_.model().shape.family == TransformerFamily::bert; }
  Tensor batch(const char* input, std::int64_t number) const {
    return recorded_.read(input).select(0, number).contiguous();
  }
  Tensors outputs(Module& network, std::int64_t number) const {
    if (!is_bert()) return {network(batch("tokens", number))};
    Tensors given{batch("tokens", number), batch("segments", number)};
    if (recorded_.model().heads.words) given.emplace_back();  // words of all positions
    given.push_back(batch("visible", number));
    return network(given);
  }
  Tensor loss(Module& network, std::int64_t number) const {
    const auto wanted = [&](const char* input) { return batch(input, number).to(DType::i64).reshape({-1}); };
    const Tensors out = outputs(network, number);
    if (GetParam() == "bert_classes") return cross_entropy(out[0], wanted("classes"));
    if (is_bert()) {
      return add(
          cross_entropy(out[0].reshape({-1, out[0].size(-1)}), wanted("labels"), LossReduction::mean, -100),
          cross_entropy(out[1], wanted("next")));
    }
    const Tensor tokens = batch("tokens", number);
    const std::int64_t length = tokens.size(1), words = out[0].size(-1);
    return cross_entropy(out[0].slice(1, 0, length - 1).reshape({-1, words}),
                         tokens.slice(1, 1, length).to(DType::i64).reshape({-1}));
  }

  test::TempDir dir_;
  RecordedModel recorded_;
  PublishedFormat format_;
  std::filesystem::path folder_ = recorded_.publish(dir_, "published", recorded_.all("weight/"));
};

TEST_P(LanguageParity, OutputsAreTransformers) {
  const auto network = loaded();
  const NoGrad no_grad;
  const Tensors out = outputs(*network, 0);
  EXPECT_EQ(out.size(), recorded_.all("output/").size());
  for (std::size_t i = 0; i < out.size(); ++i)
    EXPECT_LE(relative_difference(out[i], recorded_.read("output/" + std::to_string(i))), 1e-5) << i;
}

using MaskedWordsParity = LanguageParity;

TEST_P(MaskedWordsParity, OfSomePositionsAreThoseOfAll) {
  const auto network = loaded();
  const NoGrad no_grad;
  const Tensor all = outputs(*network, 0)[0];
  const Tensor positions =
      Tensor::from_data(std::vector<std::int64_t>{3, 7, 1, 19}, {2, 2}, recorded_.device());
  const Tensor some =
      (*network)(Tensors{batch("tokens", 0), batch("segments", 0), positions, batch("visible", 0)})[0];
  ASSERT_EQ(some.shape(), (Dims{2, 2, all.size(2)}));
  for (const auto& [row, column, position] : {std::array{0, 0, 3}, {0, 1, 7}, {1, 0, 1}, {1, 1, 19}}) {
    EXPECT_LE(
        relative_difference(some.select(0, row).select(0, column), all.select(0, row).select(0, position)),
        1e-6);
  }
}

TEST_P(LanguageParity, GradientsAreTransformers) {
  const auto network = loaded();
  const Tensor mean = loss(*network, 0);
  EXPECT_NEAR(mean.item(), recorded_.read("loss").item(), 1e-5 * recorded_.read("loss").item());
  mean.backward();
  std::map<std::string, Tensor> gradients;
  for (const auto& [name, tensor] : network->named_parameters()) gradients.emplace(name, tensor.grad());
  std::size_t compared = 0;
  for (const PublishedTensor& tensor : format_.tensors) {
    for (std::size_t part = 0; part < tensor.parts.size(); ++part, ++compared) {
      const Tensor own = published_part(gradients.at(tensor.ours), tensor, part, DType::f32);
      const std::string& name = tensor.parts[part].name;
      // That of the keys' bias is nothing but rounding: softmax does not see it.
      const Tensor expected = recorded_.read("gradient/" + name);
      const auto values = expected.to_vector<double>();
      const double largest =
          std::abs(*std::ranges::max_element(values, {}, [](double x) { return std::abs(x); }));
      if (largest < 1e-7) continue;
      EXPECT_LE(relative_difference(own, expected), 1e-4) << name;
    }
  }
  EXPECT_EQ(compared, recorded_.all("gradient/").size());
}

TEST_P(LanguageParity, TrainsAlongTransformersLosses) {
  const auto network = loaded();
  NamedTensors matrices, vectors;
  for (const auto& named : network->named_parameters())
    (named.second.rank() >= 2 ? matrices : vectors).push_back(named);
  const AdamWOptions decayed{.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .weight_decay = 0.1};
  AdamWOptions plain = decayed;
  plain.weight_decay = 0;
  AdamW optimizer({{matrices, decayed}, {vectors, plain}});
  const auto losses = recorded_.read("losses").to_vector<double>();
  ASSERT_EQ(losses.size(), 20U);
  for (std::size_t step = 0; step < losses.size(); ++step) {
    optimizer.zero_grad();
    const Tensor mean = loss(*network, static_cast<std::int64_t>(step % 4));
    mean.backward();
    optimizer.step();
    EXPECT_NEAR(mean.item(), losses[step], 1e-5 * losses[step]) << "step " << step;
  }
  EXPECT_LT(losses.back(), losses.front() - 0.1) << "it learns something";
}

TEST_P(LanguageParity, WeightsComeOutAsTheyWentIn) {
  const auto network = loaded();
  const auto expected = recorded_.all("weight/");
  for (const std::uint64_t file_bytes :
       {5'000'000'000ULL, 8'000ULL}) {  // one file, and several with an index
    const std::filesystem::path folder = dir_ / ("out" + std::to_string(file_bytes));
    EXPECT_EQ(write_published(folder, network->state_dict(), format_, file_bytes), expected.size());
    EXPECT_EQ(std::filesystem::exists(folder / "model.safetensors.index.json"), file_bytes < 10'000);
    const PublishedWeights written = PublishedWeights::open(folder);
    EXPECT_EQ(written.names().size(), expected.size());
    for (const auto& [name, tensor] : expected) {
      EXPECT_EQ(written.find(name).dtype, tensor.dtype()) << name;
      EXPECT_EQ(written.read(name, recorded_.device()).to_vector<float>(), tensor.to_vector<float>()) << name;
    }
    EXPECT_EQ(read_text_config(folder / "config.json").shape, recorded_.model().shape);
  }
}

TEST_P(LanguageParity, ConfigsOfShapesAreReadBack) {
  const TransformerShape& shape = recorded_.model().shape;
  const auto path = dir_ / "config.json";
  test::write_file(path, text_config(shape, recorded_.model().heads));
  const TextModel model = read_text_config(path);
  EXPECT_EQ(model.heads, recorded_.model().heads);
  TransformerShape read = model.shape;
  read.head_width = shape.head_width;  // written out; where it follows from the width it means the same
  read.inner = shape.inner;
  if (GetParam() == "qwen2") read.proj_bias = false;  // whose kind of biases LLaMA's config.json cannot say
  EXPECT_EQ(read, shape);
}

INSTANTIATE_TEST_SUITE_P(Families, MaskedWordsParity, testing::Values("bert"));
INSTANTIATE_TEST_SUITE_P(Families, LanguageParity,
                         testing::Values("gpt2", "llama", "llama_tied", "qwen2", "bert", "bert_classes"));

}  // namespace
}  // namespace dtrain
