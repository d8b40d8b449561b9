// BERT's samples: framed, cut into segments, with as many words masked as promised and in the promised ways,
// the same for the same key; and where the special tokens' numbers come from.
#include "models/tasks/masked_word_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "runtime/base/error.h"
#include "runtime/data/sources/text_source.h"
#include "tests/support/message_of.h"
#include "tests/support/temp_dir.h"

namespace dtrain {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kLength = 40, kMasked = 6;
constexpr BertTokens kTokens{256, 257, 258, 264};

/// Bytes that say where in the text they stand: window i begins with i · kLength modulo 251.
std::shared_ptr<const Source> windows(std::int64_t count) {
  std::string text;
  for (std::int64_t i = 0; i <= count * kLength; ++i) text += static_cast<char>(i % 251);
  return std::make_shared<TextSource>("text", std::make_shared<const std::string>(text), kLength);
}

struct Sample {
  std::vector<std::int32_t> tokens = std::vector<std::int32_t>(kLength), segments = tokens;
  std::vector<std::int64_t> positions = std::vector<std::int64_t>(kMasked), words = positions;
  std::int64_t next = -1;

  bool operator==(const Sample&) const = default;
};

Sample read(const MaskedWordSource& source, std::int64_t index, std::uint64_t epoch = 0) {
  Sample sample;
  const std::vector<View> views = {{sample.tokens.data(), DType::i32, {kLength}, {1}},
                                   {sample.segments.data(), DType::i32, {kLength}, {1}},
                                   {sample.positions.data(), DType::i64, {kMasked}, {1}},
                                   {sample.words.data(), DType::i64, {kMasked}, {1}},
                                   {&sample.next, DType::i64, {}, {}}};
  KeyedGenerator generator(7, epoch, static_cast<std::uint64_t>(index));
  source.read(index, std::span(views).first(source.fields().size()), generator);
  return sample;
}

/// The tokens as they were before some were masked.
std::vector<std::int32_t> unmasked(Sample sample) {
  for (std::size_t i = 0; i < sample.positions.size(); ++i)
    sample.tokens[static_cast<std::size_t>(sample.positions[i])] = static_cast<std::int32_t>(sample.words[i]);
  return sample.tokens;
}

TEST(MaskedWordSource, FramesTwoSegmentsOfOneWindowOrOfTwo) {
  const MaskedWordSource source(windows(50), kTokens);
  int others = 0;
  for (std::int64_t index = 0; index < source.size(); ++index) {
    const Sample sample = read(source, index);
    const std::vector<std::int32_t> tokens = unmasked(sample);
    EXPECT_EQ(tokens[0], 256);
    EXPECT_EQ(tokens[19], 257) << "18 words are in the first segment";
    EXPECT_EQ(tokens[39], 257) << "19 in the second";
    EXPECT_EQ(std::accumulate(sample.segments.begin(), sample.segments.end(), 0), 20);
    EXPECT_EQ(sample.segments[19], 0);
    EXPECT_EQ(sample.segments[20], 1);
    for (std::int64_t i = 0; i < 18; ++i)
      EXPECT_EQ(tokens[static_cast<std::size_t>(1 + i)], (index * kLength + i) % 251);
    const bool follows = tokens[20] == (index * kLength + 18) % 251;
    EXPECT_EQ(sample.next, follows ? 0 : 1) << index;
    others += sample.next == 1 ? 1 : 0;
  }
  EXPECT_GT(others, 12);
  EXPECT_LT(others, 38);
}

TEST(MaskedWordSource, OfOneSegmentHasNoNextSentence) {
  const MaskedWordSource source(windows(1), kTokens, {.pairs = false});
  EXPECT_EQ(source.fields().size(), 4U);
  const Sample sample = read(source, 0);
  const std::vector<std::int32_t> tokens = unmasked(sample);
  EXPECT_EQ(tokens[39], 257);
  EXPECT_EQ(std::accumulate(sample.segments.begin(), sample.segments.end(), 0), 0);
  for (std::size_t i = 0; i < 38; ++i) EXPECT_EQ(tokens[i + 1], static_cast<std::int32_t>(i));
}

TEST(MaskedWordSource, MasksInThePromisedWays) {
  const MaskedWordSource source(windows(2'000), kTokens);
  std::map<std::string, int> ways;
  std::vector<int> at(kLength);
  for (std::int64_t index = 0; index < source.size(); ++index) {
    const Sample sample = read(source, index);
    EXPECT_TRUE(std::ranges::is_sorted(sample.positions));
    EXPECT_EQ(std::ranges::adjacent_find(sample.positions), sample.positions.end()) << "each once";
    for (std::size_t i = 0; i < sample.positions.size(); ++i) {
      const auto position = static_cast<std::size_t>(sample.positions[i]);
      const std::int32_t token = sample.tokens[position];
      EXPECT_LT(sample.words[i], 256) << "no special token is asked for";
      ++at[position];
      ++ways[token == 258 ? "mask" : token == sample.words[i] ? "same" : "any"];
    }
  }
  const int all = 2'000 * kMasked;
  EXPECT_NEAR(ways["mask"], 0.8 * all, 0.02 * all);
  EXPECT_NEAR(ways["same"], 0.1 * all, 0.02 * all);
  EXPECT_NEAR(ways["any"], 0.1 * all, 0.02 * all);
  for (const std::size_t special : {0U, 19U, 39U}) EXPECT_EQ(at[special], 0);
  EXPECT_NEAR(at[1], all / 37.0, 100);
  EXPECT_NEAR(at[38], all / 37.0, 100);
}

TEST(MaskedWordSource, DrawsByItsKeyAlone) {
  const MaskedWordSource source(windows(20), kTokens);
  EXPECT_EQ(read(source, 3), read(source, 3));
  EXPECT_NE(read(source, 3).tokens, read(source, 3, 1).tokens) << "another epoch";
}

TEST(MaskedWordSource, RefusesWhatIsNoWindowOfTokens) {
  const auto message = [](std::shared_ptr<const Source> source, const MaskedWordOptions& options = {}) {
    return test::message_of([&] { MaskedWordSource(std::move(source), kTokens, options); });
  };
  EXPECT_THAT(message(windows(1)), HasSubstr("expected two windows or more, of which to make pairs, got 1"));
  const auto text = std::make_shared<const std::string>("too short to be framed");
  EXPECT_THAT(message(std::make_shared<TextSource>("text", text, 7)), HasSubstr("int64 [9 or more]"));
}

TEST(BertTokens, AreBehindTheDatasWhereTheModelHasNoVocabulary) {
  EXPECT_EQ(bert_tokens(text_model("bert-tiny"), 256), kTokens);
  EXPECT_EQ(bert_tokens(text_model("bert-base"), 30522), (BertTokens{101, 102, 103, 30522}));
  EXPECT_THAT(test::message_of([] { bert_tokens(text_model("bert-base"), 50257); }),
              HasSubstr("expected samples of tokens below 30522, got tokens below 50257"));
}

TEST(BertTokens, NumberedHereAreInTheConfig) {
  TextModel model = text_model("bert-tiny");
  model.config = config_with(R"({"model_type": "bert"})", kTokens);
  model.shape.vocabulary = kTokens.vocabulary;
  EXPECT_EQ(bert_tokens(model, 256), kTokens);
  model.shape.vocabulary = 258;
  EXPECT_THAT(test::message_of([&] { bert_tokens(model, 256); }), HasSubstr("a number of [MASK] below"));
}

TEST(BertTokens, AreWhatTheModelsTokenizerSays) {
  const test::TempDir dir;
  TextModel model = text_model("bert-tiny");
  model.folder = dir.path();
  model.shape.vocabulary = 6;
  EXPECT_THAT(test::message_of([&] { bert_tokens(model, 6); }), HasSubstr("tokenizer.json or vocab.txt"));
  test::write_file(dir / "vocab.txt", "[PAD]\na\n[SEP]\n[CLS]\nb\n[MASK]\n");
  EXPECT_EQ(bert_tokens(model, 6), (BertTokens{3, 2, 5, 6}));
  test::write_file(dir / "tokenizer.json", R"({"added_tokens": [{"id": 1, "content": "[CLS]"}]})");
  EXPECT_THAT(test::message_of([&] { bert_tokens(model, 6); }), HasSubstr("a token [SEP], found none"));
  test::write_file(dir / "tokenizer.json", R"({"added_tokens": [{"id": 9, "content": "[CLS]"}]})");
  EXPECT_THAT(test::message_of([&] { bert_tokens(model, 6); }),
              HasSubstr("a number of [CLS] below the model's vocabulary of 6, found 9"));
  test::write_file(dir / "tokenizer.json", "{}");
  EXPECT_THAT(test::message_of([&] { bert_tokens(model, 6); }), HasSubstr("a list of added_tokens"));
}

}  // namespace
}  // namespace dtrain
