// Scanners written by hand against the patterns that they stand for, and PCRE2 with this library's classes.
#include "runtime/data/tokens/pre_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "runtime/base/error.h"
#include "runtime/data/tokens/patterns.h"
#include "runtime/data/tokens/unicode.h"
#include "tests/support/message_of.h"

namespace dtrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Words = std::vector<std::string>;

Words words_of(const PreTokenizer& cutter, const std::string& text) {
  Words words;
  for (std::size_t at = 0; at < text.size();) {
    const WordEnd word = cutter.next(text, at);
    EXPECT_GT(word.end, at);
    if (word.kept) words.push_back(text.substr(at, word.end - at));
    at = word.end;
  }
  return words;
}

bool without_pcre2() {
  return test::message_of([] {
           regex_pre_tokenizer("a", SplitBehavior::isolated, PatternDialect::tiktoken);
         }) != "no error";
}

/// Of pieces that are hard to cut, and a few characters of any kind.
std::string random_text(std::mt19937& draw) {
  static const Words pieces = {"'s",         "'T",     "'re",
                               "'LL",        "'ſ",     "'",
                               " ",          "  ",     "\t",
                               "\n",         "\r\n",   "\r",
                               "a",          "A",      "Wo",
                               "oRd",        "1",      "1234",
                               "٣",          ".",      "!?",
                               "/",          "é",      "ǅ",
                               "ʰ",          "ª",      "漢",
                               "カ",         "\u0300", "e\u0301",
                               "😀",          "\x7f",   "-",
                               "\u00a0",     "\u0085", "\u180e",
                               "\U00010d50", "<|",     std::string(1, '\0')};
  std::string text;
  for (std::size_t count = 1 + draw() % 12; count > 0; --count) text += pieces[draw() % pieces.size()];
  return text;
}

TEST(PreTokenizer, ScannersCutAsTheirPatterns) {
  if (without_pcre2()) GTEST_SKIP() << "dtrain was built without PCRE2";
  std::mt19937 draw(1);
  for (const std::string& pattern : known_patterns()) {
    const auto dialect = pattern == patterns::kR50k || pattern == patterns::kCl100k
                             ? PatternDialect::tiktoken
                             : PatternDialect::tokenizers;
    const auto scanner = make_pre_tokenizer(pattern, SplitBehavior::isolated, dialect);
    const auto regex = regex_pre_tokenizer(pattern, SplitBehavior::isolated, dialect);
    for (int round = 0; round < 3000; ++round) {
      const std::string text = random_text(draw);
      ASSERT_EQ(words_of(*scanner, text), words_of(*regex, text)) << pattern << "\non: " << text;
    }
  }
}

TEST(PreTokenizer, CutsWordsAsGpt2) {
  const auto gpt2 =
      make_pre_tokenizer(patterns::kByteLevel, SplitBehavior::isolated, PatternDialect::tokenizers);
  EXPECT_THAT(words_of(*gpt2, "I'm here,  2 days\n\n  x "),
              ElementsAre("I", "'m", " here", ",", " ", " 2", " days", "\n\n ", " x", " "));
}

TEST(PreTokenizer, KeepsOrDropsWhatThePatternMatches) {
  if (without_pcre2()) GTEST_SKIP() << "dtrain was built without PCRE2";
  const auto cut = [](SplitBehavior behavior) {
    return words_of(*regex_pre_tokenizer("[0-9]+", behavior, PatternDialect::tokenizers), "ab12c3");
  };
  EXPECT_THAT(cut(SplitBehavior::isolated), ElementsAre("ab", "12", "c", "3"));
  EXPECT_THAT(cut(SplitBehavior::removed), ElementsAre("ab", "c"));
  EXPECT_THAT(cut(SplitBehavior::matches), ElementsAre("12", "3"));
}

TEST(PreTokenizer, ClassesOfCharactersAreThisLibrarys) {
  if (without_pcre2()) GTEST_SKIP() << "dtrain was built without PCRE2";
  const auto cut = [](const std::string& pattern, const std::string& text) {
    return words_of(*regex_pre_tokenizer(pattern, SplitBehavior::matches, PatternDialect::tokenizers), text);
  };
  // U+10D50 is a letter since Unicode 16; U+180E is no whitespace since 6.3, but PCRE2 counts it.
  EXPECT_THAT(cut("\\p{L}+", "a\U00010d50-"), ElementsAre("a\U00010d50"));
  EXPECT_THAT(cut("[^\\p{L}]+", "a\U00010d50-"), ElementsAre("-"));
  EXPECT_THAT(cut("\\P{L}+", "a\U00010d50-"), ElementsAre("-"));
  EXPECT_THAT(cut("\\S+", "a\u180e b"), ElementsAre("a\u180e", "b"));
  EXPECT_THAT(cut("[\\s\\S]+", "a\u180e b"), ElementsAre("a\u180e b"));
  EXPECT_THAT(cut("a$", "a\na"), ElementsAre("a", "a"));
}

TEST(PreTokenizer, ABrokenPatternIsRefusedWithItsText) {
  const std::string message =
      test::message_of([] { regex_pre_tokenizer("(ab", SplitBehavior::isolated, PatternDialect::tiktoken); });
  EXPECT_THAT(message, HasSubstr("(ab"));
}

TEST(Unicode, ClassesOfWellKnownCharacters) {
  const std::uint8_t* const classes = character_classes();
  EXPECT_EQ(classes['a'], kLower);
  EXPECT_EQ(classes['Z'], kUpper);
  EXPECT_EQ(classes[0x1c5], kUpper);  // titlecase
  EXPECT_EQ(classes[0x6f22], kOtherLetter);
  EXPECT_EQ(classes['7'], kNumber);
  EXPECT_EQ(classes['\n'], kSpace);
  EXPECT_EQ(classes[0x3000], kSpace);
  EXPECT_EQ(classes[0x200b], 0);
  EXPECT_EQ(classes[0x301], kMark);
  EXPECT_EQ(classes['$'], kSymbol);
  EXPECT_EQ(classes['!'], kPunctuation);
}

}  // namespace
}  // namespace dtrain
