// Files of tokenizers, and what text becomes by them. Whole published tokenizers are compared with their own
// programs in tests/strangers/tokens.
#include "runtime/data/tokens/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "runtime/base/error.h"
#include "runtime/data/formats/text.h"
#include "runtime/data/tokens/tokenizer_files.h"
#include "tests/support/message_of.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/data/tokens/small_tokenizer.h"

namespace dtrain {
namespace {

using test::message_of;
using test::SmallTokenizer;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Tokens = std::vector<std::int32_t>;

std::shared_ptr<const Tokenizer> make(const SmallTokenizer& tokenizer) {
  return std::make_shared<const Tokenizer>(read_tokenizer_json(tokenizer_json(tokenizer), "t.json"));
}

Tokens encode(const SmallTokenizer& tokenizer, std::string_view text,
              SpecialTokens specials = SpecialTokens::as_text) {
  Encoder encoder(make(tokenizer));
  Tokens tokens, again;
  encoder.encode(text, tokens, specials);
  encoder.encode(text, again, specials);  // from the cache
  EXPECT_EQ(tokens, again);
  return tokens;
}

/// he 256, ll 257, hell 258, hello 259, " w" 260, or 261, " wor" 262, ld 263, " world" 264.
SmallTokenizer small() {
  SmallTokenizer tokenizer;
  std::swap(tokenizer.merges[7], tokenizer.merges[8]);
  return tokenizer;
}

std::string message(const SmallTokenizer& tokenizer) {
  return message_of([&] { make(tokenizer); });
}

TEST(Tokenizer, JoinsTheLowestRankFirstWithinWords) {
  EXPECT_THAT(encode(small(), "hello world"), ElementsAre(259, 264));
  EXPECT_THAT(encode(small(), "hello  world"), ElementsAre(259, ' ', 264));
  EXPECT_THAT(encode(small(), "shellor"), ElementsAre('s', 259, 'r'));  // "hell o" goes before "o r"
}

TEST(Tokenizer, LongWordsGiveWhatShortOnesDo) {
  Encoder encoder(make(small()));
  std::string word;
  Tokens wanted;
  for (int i = 0; i < 400; ++i) {
    const std::string part = i % 3 == 0 ? "hello" : i % 3 == 1 ? "ll" : "x";
    const Tokens tokens = i % 3 == 0 ? Tokens{259} : i % 3 == 1 ? Tokens{257} : Tokens{'x'};
    word += part;
    wanted.insert(wanted.end(), tokens.begin(), tokens.end());
  }
  Tokens tokens;
  encoder.encode(word, tokens);
  EXPECT_EQ(tokens, wanted);
}

TEST(Tokenizer, DecodesWhatItEncoded) {
  const auto tokenizer = make(small());
  Encoder encoder(tokenizer);
  for (const std::string_view text : {"", "hello", "Größe 漢字 😀\n\t x", "a\0b"}) {
    Tokens tokens;
    encoder.encode(text, tokens);
    EXPECT_EQ(tokenizer->decode(tokens), text);
  }
  EXPECT_THAT(message_of([&] { tokenizer->decode(Tokens{299}); }), HasSubstr("expected tokens of t.json"));
}

TEST(Tokenizer, SpecialTokensAreTextUnlessAskedFor) {
  EXPECT_THAT(encode(small(), "<|endoftext|>").size(), 13U);
  EXPECT_THAT(encode(small(), "hello<|endoftext|> world", SpecialTokens::parsed), ElementsAre(259, 300, 264));
  EXPECT_EQ(make(small())->added_token("<|endoftext|>"), 300);
  EXPECT_EQ(make(small())->end_of_text(), 300);
}

TEST(Tokenizer, AddedTokensTakeWhitespaceAndWantToStandAloneWhereTheySaySo) {
  SmallTokenizer tokenizer = small();
  tokenizer.added = R"({"id": 300, "content": "AB", "lstrip": true, "normalized": false},
                       {"id": 301, "content": "ABC", "rstrip": true, "normalized": false},
                       {"id": 302, "content": "X", "single_word": true, "normalized": false})";
  EXPECT_THAT(encode(tokenizer, "a  AB b"), ElementsAre('a', 300, ' ', 'b'));
  EXPECT_THAT(encode(tokenizer, "a ABC  b"), ElementsAre('a', ' ', 301, 'b'));
  EXPECT_THAT(encode(tokenizer, "X aX X"), ElementsAre(302, ' ', 'a', 'X', ' ', 302));
}

TEST(Tokenizer, WholeWordsWhereMergesAreIgnored) {
  SmallTokenizer tokenizer = small();
  tokenizer.merges = {{"a", "b"}, {"b", "c"}, {"a", "bc"}};  // "abc" is never joined: "a b" goes first
  EXPECT_THAT(encode(tokenizer, "abc"), ElementsAre(256, 'c'));
  tokenizer.model_extra = R"(, "ignore_merges": true)";
  EXPECT_THAT(encode(tokenizer, "abc"), ElementsAre(258));
}

TEST(Tokenizer, NormalizesWhereItSaysSo) {
  SmallTokenizer tokenizer = small();
  EXPECT_THAT(encode(tokenizer, "e\u0301"), ElementsAre('e', 0xcc, 0x81));
  tokenizer.normalizer = R"({"type": "Sequence", "normalizers": [{"type": "NFC"}]})";
  if (message(tokenizer) != "no error") GTEST_SKIP() << message(tokenizer);
  EXPECT_THAT(encode(tokenizer, "e\u0301"), ElementsAre(0xc3, 0xa9));
  tokenizer.normalizer = R"({"type": "NFKC"})";
  EXPECT_THAT(encode(tokenizer, "\ufb01"), ElementsAre('f', 'i'));
  // U+07FD came after Unicode 9: it is not sorted in front of U+0345.
  EXPECT_THAT(encode(tokenizer, "a\u0345\u07fd"), ElementsAre('a', 0xcd, 0x85, 0xdf, 0xbd));
}

TEST(Tokenizer, SeveralCutsOneAfterTheOther) {
  SmallTokenizer tokenizer = small();
  tokenizer.merges = {{"1", "2"}, {"12", "3"}, {"12", "34"}, {"3", "4"}};
  tokenizer.pre_tokenizer = R"({"type": "Sequence", "pretokenizers": [
      {"type": "Split", "pattern": {"Regex": "\\p{N}{1,3}"}, "behavior": "Isolated", "invert": false},
      {"type": "ByteLevel", "add_prefix_space": true, "use_regex": false}]})";
  EXPECT_THAT(encode(tokenizer, "x1234"), ElementsAre(' ', 'x', ' ', 257, ' ', '4'));
}

TEST(Tokenizer, TokensThatEndAWord) {
  SmallTokenizer tokenizer = small();
  tokenizer.word_end = "</w>";
  tokenizer.merges = {{"h", "e"}, {"l", "o</w>"}, {"he", "l"}, {"hel", "lo</w>"}};
  tokenizer.normalizer = R"({"type": "Sequence", "normalizers": [
      {"type": "Replace", "pattern": {"Regex": "\\s+"}, "content": " "}, {"type": "Lowercase"}]})";
  tokenizer.pre_tokenizer = R"({"type": "Sequence", "pretokenizers": [
      {"type": "Split", "pattern": {"Regex": "\\p{L}+|[^\\s\\p{L}]"}, "behavior": "Removed", "invert": true},
      {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]})";
  EXPECT_THAT(encode(tokenizer, "HELLO  he\n!"), ElementsAre(515, 'h', 256 + 'e', 256 + '!'));
  EXPECT_EQ(make(tokenizer)->decode(std::vector<std::int32_t>{515, 'h', 256 + 'e'}), "hello he ");
}

/// un 5, ##believ 6, ##able 7, "," 8, café 9, ##s 10, 漢 11, i 12.
std::string word_pieces(const std::string& normalizer) {
  return R"({"normalizer": )" + normalizer + R"(, "pre_tokenizer": {"type": "BertPreTokenizer"},
      "added_tokens": [{"id": 3, "content": "[SEP]", "special": true, "normalized": false}],
      "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
      "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 12,
                "vocab": {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "un": 5, "##believ": 6, "##able": 7,
                          ",": 8, "café": 9, "##s": 10, "漢": 11, "i": 12}}})";
}
Tokens pieces_of(std::string_view text,
                 const std::string& normalizer = R"({"type": "BertNormalizer", "strip_accents": false})") {
  Encoder encoder(std::make_shared<const Tokenizer>(read_tokenizer_json(word_pieces(normalizer), "b.json")));
  Tokens tokens;
  encoder.encode(text, tokens, SpecialTokens::parsed);
  return tokens;
}

TEST(WordPiece, CutsWordsIntoTheirLongestPieces) {
  EXPECT_THAT(pieces_of("Unbelievable,\tCAFÉS [SEP]"), ElementsAre(5, 6, 7, 8, 9, 10, 3));
  EXPECT_THAT(pieces_of("unbelieving un"),
              ElementsAre(1, 5));  // no piece for the rest: the whole word is unknown
  EXPECT_THAT(pieces_of("unbelievables un"), ElementsAre(1, 5));  // 13 characters
  EXPECT_THAT(pieces_of("un漢un"), ElementsAre(5, 11, 5));        // ideographs are words
  EXPECT_THAT(pieces_of("u\u00adn\u200b"), ElementsAre(5));       // without what does not print
  EXPECT_THAT(pieces_of("un", R"({"type": "BertNormalizer", "lowercase": false})"), ElementsAre(5));
  EXPECT_THAT(pieces_of("Un", R"({"type": "BertNormalizer", "lowercase": false})"), ElementsAre(1));
}

TEST(WordPiece, DecodesAsHuggingFaceDoes) {
  const Tokenizer tokenizer(read_tokenizer_json(word_pieces("null"), "b.json"));
  EXPECT_EQ(tokenizer.decode(std::vector<std::int32_t>{5, 6, 7, 8, 9, 10, 11}), "unbelievable, cafés 漢");
  EXPECT_EQ(tokenizer.end_of_text(), 3);
}

TEST(WordPiece, RefusesAVocabularyWithoutTheUnknownWord) {
  std::string file = word_pieces("null");
  file.replace(file.find("\"unk_token\": \"[UNK]"), 19, "\"unk_token\": \"[unk]");
  EXPECT_THAT(message_of([&] { Tokenizer(read_tokenizer_json(file, "b.json")); }),
              AllOf(HasSubstr("b.json"), HasSubstr("[unk]")));
}

TEST(Tokenizer, TheHashTellsOthers) {
  SmallTokenizer other = small();
  std::swap(other.merges[0], other.merges[1]);
  EXPECT_EQ(make(small())->hash(), make(small())->hash());
  EXPECT_NE(make(small())->hash(), make(other)->hash());
  other = small();
  other.pre_tokenizer = R"({"type": "ByteLevel", "add_prefix_space": true, "use_regex": true})";
  EXPECT_NE(make(small())->hash(), make(other)->hash());
}

TEST(Tokenizer, RefusesByTheNameOfThePart) {
  const auto with = [](auto change) {
    SmallTokenizer tokenizer = small();
    change(tokenizer);
    return message(tokenizer);
  };
  EXPECT_THAT(with([](auto& t) { t.normalizer = R"({"type": "Prepend", "prepend": "▁"})"; }),
              AllOf(HasSubstr("t.json"), HasSubstr("in normalizer"), HasSubstr("Prepend")));
  EXPECT_THAT(with([](auto& t) { t.pre_tokenizer = R"({"type": "Metaspace"})"; }),
              AllOf(HasSubstr("in pre_tokenizer"), HasSubstr("Metaspace")));
  EXPECT_THAT(with([](auto& t) { t.pre_tokenizer = "null"; }), HasSubstr("a byte-level BPE"));
  EXPECT_THAT(with([](auto& t) { t.model_extra = R"(, "end_of_word_suffix": "</w>")"; }),
              HasSubstr("a token for each byte, got none for 0x00 at the end of a word"));
  EXPECT_THAT(with([](auto& t) { t.model_extra = R"(, "continuing_subword_prefix": "##")"; }),
              AllOf(HasSubstr("no continuing_subword_prefix"), HasSubstr("##")));
  EXPECT_THAT(with([](auto& t) { t.model_extra = R"(, "dropout": 0.1)"; }), HasSubstr("no dropout"));
  EXPECT_THAT(with([](auto& t) {
                t.merges.push_back({"q", "nothere"});
              }),
              AllOf(HasSubstr("merges, rule 9"), HasSubstr("nothere")));
  EXPECT_THAT(with([](auto& t) { t.added = R"({"id": -1, "content": "x"})"; }),
              HasSubstr("a token's number"));
  EXPECT_THAT(message_of([] { read_tokenizer_json("{\"model\": ", "t.json"); }),
              AllOf(HasSubstr("t.json"), HasSubstr("byte 11"), HasSubstr("JSON")));
}

TEST(Tokenizer, RefusesTextThatIsNotUtf8) {
  Encoder encoder(make(small()));
  Tokens tokens;
  EXPECT_THAT(message_of([&] { encoder.encode("hello, w\xffrld", tokens); }),
              AllOf(HasSubstr("0xff"), HasSubstr("offset 8")));
  EXPECT_TRUE(tokens.empty());
}

TEST(Utf8, TheFirstInvalidByteIsFoundWhereverItIs) {
  for (const std::string_view bad :
       {"\xff", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82", "\x80"}) {
    for (std::size_t in_front = 0; in_front < 20; ++in_front) {
      const std::string text = std::string(in_front, 'a') + std::string(bad) + "tail of ascii";
      EXPECT_EQ(valid_utf8(text), in_front);
    }
  }
  EXPECT_EQ(valid_utf8("é漢😀abcdefgh"), std::string_view("é漢😀abcdefgh").size());
}

TEST(Tiktoken, RefusesRanksOfNoPublishedEncodingAndBrokenLines) {
  EXPECT_THAT(message_of([] { read_tiktoken("IQ== 0\nIg== 1\n", "r.tiktoken"); }),
              AllOf(HasSubstr("r.tiktoken"), HasSubstr("cl100k_base (100256)"), HasSubstr("2 ranks")));
  EXPECT_THAT(message_of([] { read_tiktoken("IQ== 0\nIg==\n", "r.tiktoken"); }), HasSubstr("byte 7"));
  EXPECT_THAT(message_of([] { read_tiktoken("IQ== 0\nIg== 0\n", "r.tiktoken"); }),
              HasSubstr("each rank once"));
}

TEST(OpenTokenizer, ReadsFoldersOfBothKinds) {
  const test::TempDir folder;
  test::write_file(folder / "tokenizer.json", tokenizer_json(small()));
  EXPECT_EQ(open_tokenizer(folder.path().string())->vocabulary(), 301);
  const test::TempDir old;
  test::write_file(old / "vocab.json", [] {
    const std::string whole = tokenizer_json(small());
    const std::size_t from = whole.find("\"vocab\": ") + 9;
    return whole.substr(from, whole.find('}', whole.find("\"Ġworld\"", from)) + 1 - from);
  }());
  test::write_file(old / "merges.txt", "#version: 0.2\nh e\nl l\nhe ll\nhell o\n");
  Encoder encoder(open_tokenizer(old.path().string()));
  Tokens tokens;
  encoder.encode("hello", tokens);
  EXPECT_THAT(tokens, ElementsAre(259));
  EXPECT_THAT(message_of([&] { open_tokenizer((folder / "missing").string()); }), HasSubstr("a tokenizer"));
}

}  // namespace
}  // namespace dtrain
