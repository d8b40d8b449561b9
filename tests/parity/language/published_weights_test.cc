// Folders of published weights as they are found: old files, several files, other heads, and what does not
// fit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/text/bert.h"
#include "models/text/transformer.h"
#include "tests/parity/language/recorded_model.h"
#include "tests/support/message_of.h"

namespace dtrain {
namespace {

using test::RecordedModel;
using testing::AllOf;
using testing::HasSubstr;

class PublishedGpt2 : public testing::Test {
 protected:
  std::unique_ptr<Transformer> made(TransformerShape shape) const {
    Generator generator(3);
    return std::make_unique<Transformer>(shape, generator, recorded_.device());
  }
  /// Loads a folder with these tensors.
  LeftOut load(Transformer& network, const NamedTensors& tensors,
               MissingWeights missing = MissingWeights::refused) {
    const auto folder = recorded_.publish(dir_, "f" + std::to_string(folders_++), tensors);
    TextModel model = recorded_.model();
    model.shape = network.shape();
    return load_published(network, PublishedWeights::open(folder), *published_format(model), "gpt2", missing);
  }
  void expect_loaded(Transformer& network) const {
    const auto expected = made(recorded_.model().shape);
    load_published(*expected,
                   PublishedWeights::open(recorded_.publish(dir_, "expected", recorded_.all("weight/"))),
                   *published_format(recorded_.model()), "gpt2");
    const NamedTensors a = network.state_dict(), b = expected->state_dict();
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i)
      EXPECT_EQ(a[i].second.to_vector<float>(), b[i].second.to_vector<float>()) << a[i].first;
  }

  test::TempDir dir_;
  RecordedModel recorded_{"gpt2"};
  NamedTensors tensors_ = recorded_.all("weight/");
  int folders_ = 0;
};

TEST_F(PublishedGpt2, OfTheFirstReleaseHasMasksAndNoPrefix) {
  NamedTensors old;
  for (const auto& [name, tensor] : tensors_)
    old.emplace_back(name.substr(std::string("transformer.").size()), tensor);
  for (const char* const layer : {"h.0.", "h.1."}) {
    old.emplace_back(layer + std::string("attn.bias"), Tensor::ones({1, 1, 24, 24}, recorded_.device()));
    old.emplace_back(layer + std::string("attn.masked_bias"), Tensor::ones({1}, recorded_.device()));
  }
  const auto network = made(recorded_.model().shape);
  EXPECT_THAT(load(*network, old).kept, testing::IsEmpty());
  expect_loaded(*network);
}

TEST_F(PublishedGpt2, MayRepeatTheTiedHead) {
  tensors_.emplace_back("lm_head.weight", recorded_.read("weight/transformer.wte.weight"));
  const auto network = made(recorded_.model().shape);
  EXPECT_THAT(load(*network, tensors_).kept, testing::IsEmpty());
  expect_loaded(*network);
}

TEST_F(PublishedGpt2, NamesAllThatDoesNotFitAndChangesNothing) {
  const auto network = made(recorded_.model().shape);
  const auto before = network->state_dict()[0].second.to_vector<float>();
  std::erase_if(tensors_, [](const auto& named) { return named.first == "transformer.ln_f.bias"; });
  tensors_.emplace_back("transformer.h.0.adapter", Tensor::ones({3}, recorded_.device()));
  for (auto& [name, tensor] : tensors_) {
    if (name == "transformer.h.1.mlp.c_fc.weight") tensor = tensor.transpose(0, 1).contiguous();
  }
  EXPECT_THAT(
      test::message_of([&] { load(*network, tensors_); }),
      AllOf(HasSubstr("missing: transformer.ln_f.bias"), HasSubstr("unexpected: transformer.h.0.adapter"),
            HasSubstr("transformer.h.1.mlp.c_fc.weight (expected float32 [24, 96], found float32 [96, 24])"),
            HasSubstr("/f0: expected the weights of gpt2 (28 tensors)")));
  EXPECT_EQ(network->state_dict()[0].second.to_vector<float>(), before);
}

TEST_F(PublishedGpt2, KeepsAnotherHeadWhereThatIsAsked) {
  TransformerShape shape = recorded_.model().shape;
  shape.tied = false;
  const auto network = made(shape);
  const auto head = network->state_dict().back();
  ASSERT_EQ(head.first, "head.weight");
  const auto drawn = head.second.to_vector<float>();
  EXPECT_THAT(test::message_of([&] { load(*network, tensors_); }), HasSubstr("missing: lm_head.weight"));
  tensors_.emplace_back("transformer.h.0.adapter", Tensor::ones({3}, recorded_.device()));
  const LeftOut left = load(*network, tensors_, MissingWeights::kept);
  EXPECT_THAT(left.kept, testing::ElementsAre("head.weight"));
  EXPECT_THAT(left.unused, testing::ElementsAre("transformer.h.0.adapter"));
  EXPECT_EQ(network->state_dict().back().second.to_vector<float>(), drawn);
  ASSERT_EQ(network->state_dict()[0].first, "embed.positions");
  EXPECT_EQ(network->state_dict()[0].second.to_vector<float>(),
            recorded_.read("weight/transformer.wpe.weight").to_vector<float>());
}

TEST_F(PublishedGpt2, OfAnotherFamilyAltogetherIsRefusedEvenInPart) {
  const auto network = made(recorded_.model().shape);
  EXPECT_THAT(
      test::message_of([&] {
        load(*network, {{"model.norm.weight", Tensor::ones({24}, recorded_.device())}}, MissingWeights::kept);
      }),
      HasSubstr("nothing of them fits"));
}

TEST_F(PublishedGpt2, NeedsAllFilesOfItsIndex) {
  const auto network = made(recorded_.model().shape);
  const auto folder = dir_ / "cut";
  write_published(folder, network->state_dict(), *published_format(recorded_.model()), 20'000);
  const auto message = [&] { return test::message_of([&] { PublishedWeights::open(folder); }); };
  EXPECT_EQ(message(), "no error");
  std::filesystem::copy_file(folder / "model-00001-of-00004.safetensors", folder / "other",
                             std::filesystem::copy_options::overwrite_existing);
  std::filesystem::rename(folder / "other", folder / "model-00002-of-00004.safetensors");
  EXPECT_THAT(message(), HasSubstr("as model.safetensors.index.json says, found no such tensor"));
  std::filesystem::remove(folder / "model-00002-of-00004.safetensors");
  EXPECT_THAT(message(), HasSubstr("model-00002-of-00004.safetensors"));
  test::write_file(folder / "model.safetensors.index.json", R"({"weight_map": {"a": "../b"}})");
  EXPECT_THAT(message(), HasSubstr("expected the name of a file for a, found \"../b\""));
}

TEST(PublishedBert, OfTheFirstReleaseHasGammasAndBetas) {
  const test::TempDir dir;
  const RecordedModel recorded("bert");
  NamedTensors old;
  for (const auto& [name, tensor] : recorded.all("weight/")) {
    std::string then = name;
    for (const auto& [now, before] :
         {std::pair<std::string, std::string>{"LayerNorm.weight", "LayerNorm.gamma"},
          {"LayerNorm.bias", "LayerNorm.beta"}}) {
      if (then.ends_with(now)) then.replace(then.size() - now.size(), now.size(), before);
    }
    old.emplace_back(then, tensor);
  }
  old.emplace_back("bert.embeddings.position_ids", Tensor::arange(24, recorded.device()).reshape({1, 24}));
  old.emplace_back("cls.predictions.decoder.weight",
                   recorded.read("weight/bert.embeddings.word_embeddings.weight"));
  Generator generator(3);
  Bert network(recorded.model().shape, recorded.model().heads, generator, recorded.device());
  const PublishedFormat format = *published_format(recorded.model());
  load_published(network, PublishedWeights::open(recorded.publish(dir, "old", old)), format, "bert");
  write_published(dir / "new", network.state_dict(), format);
  const PublishedWeights written = PublishedWeights::open(dir / "new");
  for (const auto& [name, tensor] : recorded.all("weight/"))
    EXPECT_EQ(written.read(name, recorded.device()).to_vector<float>(), tensor.to_vector<float>()) << name;
}

TEST(PublishedBert, GivesAClassifierAllButItsHead) {
  const test::TempDir dir;
  const RecordedModel recorded("bert");
  TextModel model = recorded.model();
  model.heads = {.words = false, .next_sentence = false, .classes = 3};
  Generator generator(3);
  Bert network(model.shape, model.heads, generator, recorded.device());
  const LeftOut left =
      load_published(network, PublishedWeights::open(recorded.publish(dir, "bert", recorded.all("weight/"))),
                     *published_format(model), "bert", MissingWeights::kept);
  EXPECT_THAT(left.kept, testing::ElementsAre("classes.bias", "classes.weight"));
  EXPECT_THAT(left.unused, testing::Contains("cls.predictions.bias"));
}

TEST_F(PublishedGpt2, InPicklesAloneIsRefused) {
  std::filesystem::create_directories(dir_ / "pickled");
  test::write_file(dir_ / "pickled/config.json", "{}");
  EXPECT_FALSE(PublishedWeights::is_folder(dir_ / "pickled"));
  test::write_file(dir_ / "pickled/pytorch_model.bin", "x");
  EXPECT_TRUE(PublishedWeights::is_folder(dir_ / "pickled"));
  EXPECT_THAT(
      test::message_of([&] { PublishedWeights::open(dir_ / "pickled"); }),
      HasSubstr("expected model.safetensors or model.safetensors.index.json, found pytorch_model.bin"));
}

TEST_F(PublishedGpt2, IsNotWrittenOverAFolder) {
  const auto network = made(recorded_.model().shape);
  std::filesystem::create_directories(dir_ / "there");
  EXPECT_THAT(test::message_of([&] {
                write_published(dir_ / "there", network->state_dict(), *published_format(recorded_.model()));
              }),
              HasSubstr("expected a folder that does not exist yet"));
}

TEST(TextConfig, NamesWhatIsNotBuilt) {
  const test::TempDir dir;
  const auto path = dir / "config.json";
  const auto message = [&](const std::string& text) {
    test::write_file(path, text);
    return test::message_of([&] { read_text_config(path); });
  };
  EXPECT_THAT(
      message(R"({"model_type": "mamba"})"),
      HasSubstr("config.json: expected model_type: gpt2, llama, mistral, qwen2 or bert, found mamba"));
  EXPECT_THAT(message("{}"), HasSubstr("found none"));
  EXPECT_THAT(message("[1]"), HasSubstr("expected one JSON object"));
  EXPECT_THAT(message(R"({"model_type": "gpt2", "n_embd": "wide"})"),
              HasSubstr("n_embd: a whole number of at least 1, found \"wide\""));
  EXPECT_THAT(message(R"({"model_type": "gpt2", "scale_attn_by_inverse_layer_idx": true})"),
              HasSubstr("scale_attn_by_inverse_layer_idx: false, found true"));
  EXPECT_THAT(message(R"({"model_type": "gpt2", "activation_function": "swish"})"),
              HasSubstr("activation_function: gelu, gelu_new, gelu_pytorch_tanh or relu, found swish"));
  const std::string llama =
      R"({"model_type": "llama", "vocab_size": 8, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2)";
  EXPECT_THAT(message(llama + "}"), HasSubstr("intermediate_size: a whole number, found none"));
  EXPECT_THAT(message(llama + R"(, "intermediate_size": 8, "rope_scaling": {"type": "yarn"}})"),
              HasSubstr("rope_type: default or llama3, found yarn"));
  EXPECT_THAT(message(llama + R"(, "intermediate_size": 8, "hidden_act": "gelu"})"),
              HasSubstr("hidden_act: \"silu\", found \"gelu\""));
  EXPECT_THAT(test::message_of([&] { read_text_config(dir / "none.json"); }),
              HasSubstr("found no such file"));
}

TEST(TextModel, HasTheSizesOfItsName) {
  EXPECT_EQ(text_model("gpt2").shape.width, 768);
  EXPECT_EQ(text_model("gpt2-xl").shape.layers, 48);
  EXPECT_THAT(test::message_of([] { text_model("gpt5"); }), HasSubstr("gpt2-medium"));
  Generator generator(1);
  const auto device = make_device("cpu");
  TransformerShape shape = text_model("gpt2").shape;
  shape.layers = 1;
  const Transformer network(shape, generator, device);
  EXPECT_EQ(network.parameter_count() + 11 * 7'087'872, 124'439'808) << "with all twelve blocks";
}

}  // namespace
}  // namespace dtrain
