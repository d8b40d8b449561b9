// Byte pairs learned from words. That they are those of tokenizers, on megabytes: tests/strangers/tokens.
#include "runtime/data/tokens/shards/train_tokenizer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/error.h"
#include "runtime/data/tokens/tokenizer_files.h"
#include "tests/support/message_of.h"
#include "tests/support/temp_dir.h"

namespace dtrain {
namespace {

using test::message_of;
using test::write_file;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Strings = std::vector<std::string>;

/// The bytes of each token that was learned, in order.
Strings learned_tokens(const LearnedPairs& learned) {
  return {learned.tokens.begin() + kLeastVocabulary, learned.tokens.end()};
}

TEST(LearnPairs, TheMostFrequentPairGoesFirst) {
  const WordCounts words = {{"low", 5}, {"lower", 2}, {"newest", 6}, {"widest", 3}};
  // es 9; then est 9; lo 7; low 7; then ne, ew, wes… 6 each: the lowest numbers, which are e and w.
  EXPECT_THAT(learned_tokens(learn_pairs(words, 262)), ElementsAre("es", "est", "lo", "low", "ew"));
}

TEST(LearnPairs, EqualOnesGoByNumbersWhichFollowVisibleCharacters) {
  // A space is moved to U+0120: behind all that print, é's bytes among them.
  const WordCounts words = {{" a", 1}, {"xy", 1}, {"é", 1}, {"ba", 1}};
  EXPECT_THAT(learned_tokens(learn_pairs(words, 1000)), ElementsAre("ba", "xy", "é", " a"));
}

TEST(LearnPairs, OverlappingPairsAreJoinedFromTheLeft) {
  const LearnedPairs learned = learn_pairs({{"aaaaa", 1}}, 1000);
  // aa aa a: of the two pairs that occur once, (aa, a) has the lower numbers.
  EXPECT_THAT(learned_tokens(learned), ElementsAre("aa", "aaa", "aaaaa"));
}

class TrainTokenizer : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& content) const {
    write_file(folder_ / name, content);
    return (folder_ / name).string();
  }
  /// Of several pieces.
  std::string many_words() const {
    std::string text;
    for (int i = 0; text.size() < (5U << 20U); ++i)
      text += fmt::format("the {} cats' héllo{}\n{}", i % 7919, i * 31 % 1009, i % 5 == 0 ? "\n  --  " : "");
    return text;
  }

  test::TempDir folder_;
};

TEST_F(TrainTokenizer, TheSameForAnyNumberOfThreadsAndOrderOfInputs) {
  const std::string a = write("a.txt", many_words()), b = write("b.jsonl", "{\"text\": \"a banana\"}\n");
  TrainTokenizerRequest request{.inputs = {a, b}, .vocabulary = 600};
  const std::string one = write_tokenizer_json(train_tokenizer(request));
  request.inputs = {b, a};
  for (const int threads : {2, 5}) {
    request.threads = threads;
    EXPECT_EQ(write_tokenizer_json(train_tokenizer(request)), one) << threads;
  }
}

TEST_F(TrainTokenizer, WhatIsWrittenIsReadAgain) {
  const std::string text = "she sells \"sea\\shells\" by the sea shore\t\n\x01\x7f é 漢字 <|endoftext|>";
  const LearnedPairs learned = train_tokenizer({.inputs = {write("a.txt", text + text)}, .vocabulary = 290});
  ASSERT_EQ(learned.tokens.size(), 290U);
  const auto tokenizer = open_tokenizer(write("tokenizer.json", write_tokenizer_json(learned)));
  EXPECT_EQ(tokenizer->vocabulary(), 290);
  EXPECT_EQ(tokenizer->end_of_text(), 0);
  for (std::int32_t token = 0; token < 290; ++token)
    EXPECT_EQ(tokenizer->decode({{token}}), learned.tokens[static_cast<std::size_t>(token)]);
  std::vector<std::int32_t> tokens;
  Encoder(tokenizer).encode(text, tokens);
  EXPECT_EQ(tokenizer->decode(tokens), text);
  EXPECT_LT(tokens.size(), text.size());
}

TEST_F(TrainTokenizer, StopsWhereNoPairIsLeft) {
  EXPECT_EQ(train_tokenizer({.inputs = {write("a.txt", "ab ab")}, .vocabulary = 1000}).tokens.size(), 259U);
}

TEST_F(TrainTokenizer, RefusesAVocabularyWithoutRoomForTheBytes) {
  EXPECT_THAT(message_of([&] { train_tokenizer({.inputs = {write("a.txt", "ab")}, .vocabulary = 256}); }),
              HasSubstr("at least 1 thread and 257 tokens (256 bytes and <|endoftext|>), got 1, 1 and 256"));
}

}  // namespace
}  // namespace dtrain
