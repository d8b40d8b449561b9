// Generation: the tokens that transformers generates, greedily and by seed; the same with and without a
// cache, and for a prompt alone and among others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/text/generate.h"
#include "models/text/likelihood.h"
#include "runtime/autograd/ops.h"
#include "tests/parity/language/recorded_model.h"
#include "tests/support/message_of.h"

namespace dtrain {
namespace {

using test::RecordedModel;
using testing::HasSubstr;
using Tokens = std::vector<std::int32_t>;

class Generate : public testing::TestWithParam<std::string> {
 protected:
  Generate() {
    Generator generator(3);
    network_ = std::make_unique<Transformer>(recorded_.model().shape, generator, recorded_.device());
    load_published(*network_,
                   PublishedWeights::open(recorded_.publish(dir_, "published", recorded_.all("weight/"))),
                   *published_format(recorded_.model()), GetParam());
  }
  std::vector<Tokens> rows(const std::string& name) const {
    const Tensor tensor = recorded_.read(name);
    std::vector<Tokens> rows;
    for (std::int64_t row = 0; row < tensor.size(0); ++row)
      rows.push_back(tensor.select(0, row).to_vector<std::int32_t>());
    return rows;
  }

  test::TempDir dir_;
  RecordedModel recorded_{GetParam()};
  std::unique_ptr<Transformer> network_;
};

TEST_P(Generate, TakesTheLikeliestAsTransformersDoes) {
  for (const bool cache : {true, false}) {
    EXPECT_EQ(generate(*network_, rows("prompt"), {.tokens = 15, .cache = cache}), rows("tokens/greedy"))
        << (cache ? "with" : "without") << " a cache";
  }
}

TEST_P(Generate, DrawsBySeedAsTransformersDoes) {
  const SamplingOptions narrow{.temperature = 0.8, .top_k = 20, .top_p = 0.9}, wide{.temperature = 1.5};
  EXPECT_EQ(generate(*network_, rows("prompt"), {.tokens = 15, .sampling = narrow, .seed = 5}),
            rows("tokens/sampled"));
  EXPECT_EQ(generate(*network_, rows("prompt"), {.tokens = 15, .sampling = wide, .seed = 5}),
            rows("tokens/sampled_plain"));
}

TEST_P(Generate, APromptAmongOthersIsContinuedAsAlone) {
  Generator generator(11);
  std::vector<Tokens> prompts;
  std::vector<double> drawn(12);
  for (int i = 0; i < 100; ++i) {  // of 1 to 12 tokens
    generator.uniform(drawn, 0, 64);
    prompts.emplace_back(drawn.begin(), drawn.begin() + 1 + i % 12);
  }
  const auto together = generate(*network_, prompts, {.tokens = 8});
  const auto uncached = generate(*network_, prompts, {.tokens = 8, .cache = false});
  EXPECT_EQ(together, uncached);
  for (std::size_t i = 0; i < prompts.size(); i += 9)
    EXPECT_EQ(generate(*network_, {prompts[i]}, {.tokens = 8})[0], together[i]) << i;
}

TEST_P(Generate, EndsAtAStopTokenAndWhereTheContextIsFull) {
  const auto greedy = rows("tokens/greedy");
  std::vector<std::pair<std::size_t, std::int32_t>> arrived;
  const auto stopped =
      generate(*network_, rows("prompt"), {.tokens = 15, .stop = {greedy[0][3]}},
               [&](std::size_t row, std::int32_t token) { arrived.emplace_back(row, token); });
  const auto end = std::ranges::find(greedy[0], greedy[0][3]);
  EXPECT_EQ(stopped[0], Tokens(greedy[0].begin(), end));
  EXPECT_EQ(arrived.size(), stopped[0].size() + stopped[1].size());
  const std::int64_t context = network_->shape().context;
  EXPECT_EQ(generate(*network_, {{1, 2}}, {.tokens = 100})[0].size(), static_cast<std::size_t>(context - 2));
}

// The recorded logits of transformers say how likely the second half of each recorded text is after the
// first.
TEST_P(Generate, FindsTextsAsLikelyAsTransformersDoes) {
  const Tensor logits = recorded_.read("output/0");  // [B, L, vocabulary]
  const Tensor tokens = recorded_.read("tokens").select(0, 0).to(DType::i32);
  std::vector<Tokens> texts;
  for (std::int64_t row = 0; row < tokens.size(0); ++row)
    texts.push_back(tokens.select(0, row).to_vector<std::int32_t>());
  const std::int64_t length = logits.size(1), half = length / 2;
  std::vector<Continuation> asked;
  std::vector<double> expected;
  for (std::size_t row = 0; row < texts.size(); ++row) {
    const Tokens& text = texts[row];
    const std::int64_t end = length - static_cast<std::int64_t>(row);  // of unequal lengths
    asked.push_back({{text.begin(), text.begin() + half}, {text.begin() + half, text.begin() + end}});
    const std::vector<std::int64_t> wanted(text.begin() + half, text.begin() + end);
    const Tensor behind =
        logits.select(0, static_cast<std::int64_t>(row)).slice(0, half - 1, end - 1).contiguous();
    expected.push_back(-cross_entropy(behind, Tensor::from_data(wanted, {end - half}, recorded_.device()),
                                      LossReduction::sum)
                            .item());
  }
  for (const std::int64_t batch : {1, 3, 8}) {
    const auto found = likelihoods(*network_, asked, batch);
    for (std::size_t row = 0; row < texts.size(); ++row)
      EXPECT_NEAR(found[row].log, expected[row], 1e-5 * std::abs(expected[row])) << row;
  }
  const Tokens prompt = rows("prompt")[0], greedy = rows("tokens/greedy")[0];
  Tokens other = greedy;
  other.back() = (other.back() + 1) % 64;
  EXPECT_TRUE(likelihoods(*network_, {{{prompt, greedy}}}, 1)[0].greedy);
  EXPECT_FALSE(likelihoods(*network_, {{{prompt, other}}}, 1)[0].greedy);
  // Of what is longer than the context, the end counts.
  Tokens longer(30, 5);
  longer.insert(longer.end(), prompt.begin(), prompt.end());
  const auto context = static_cast<std::size_t>(network_->shape().context);
  const Tokens seen(longer.end() - static_cast<std::ptrdiff_t>(context - 2), longer.end());
  const Tokens three(greedy.begin(), greedy.begin() + 3);
  EXPECT_EQ(likelihoods(*network_, {{{longer, three}}}, 1)[0].log,
            likelihoods(*network_, {{{seen, three}}}, 1)[0].log);
  EXPECT_THAT(test::message_of([&] {
                likelihoods(*network_, {{{{}, three}}}, 1);
              }),
              HasSubstr("expected a context"));
}

TEST_P(Generate, RefusesWhatItCannotContinue) {
  const auto message = [&](const Tokens& prompt) {
    return test::message_of([&] { generate(*network_, {prompt}, {}); });
  };
  EXPECT_THAT(message({}), HasSubstr("expected prompts of 1 to 23 tokens, for a context of 24, got 0"));
  EXPECT_THAT(message(Tokens(24, 1)), HasSubstr("got 24"));
  EXPECT_THAT(message({1, 64}), HasSubstr("expected tokens below the vocabulary of 64, got 64"));
  Generator generator(1);
  const std::vector<float> bad = {1, NAN};
  EXPECT_THAT(test::message_of([&] { sample_tokens(bad, 1, {}, generator); }),
              HasSubstr("expected finite logits"));
  EXPECT_THAT(test::message_of([&] { sample_tokens({}, 0, {.top_p = 0}, generator); }),
              HasSubstr("a top_p above 0"));
}

INSTANTIATE_TEST_SUITE_P(Families, Generate, testing::Values("gpt2", "llama", "llama_tied", "qwen2"));

}  // namespace
}  // namespace dtrain
