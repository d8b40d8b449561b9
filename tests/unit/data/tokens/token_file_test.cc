// Files of tokens: what is written is read, other programs' files are, and broken ones are refused by place.
#include "runtime/data/tokens/shards/token_file.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "runtime/base/error.h"
#include "runtime/data/sources/open_source.h"
#include "runtime/data/tokens/shards/token_shard.h"
#include "tests/support/message_of.h"
#include "tests/support/sample.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/data/tokens/small_tokenizer.h"

namespace dtrain {
namespace {

using test::message_of;
using test::read_file;
using test::Sample;
using test::write_file;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Tokens = std::vector<std::int32_t>;

template <class T>
std::string raw(std::initializer_list<T> values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  std::memcpy(bytes.data(), values.begin(), bytes.size());
  return bytes;
}

std::string padded(std::string header) {
  header.resize(1024);
  return header;
}

class TokenFiles : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& content) const {
    write_file(folder_ / name, content);
    return (folder_ / name).string();
  }
  std::string shard(const std::string& name, const Tokens& tokens, std::int64_t vocabulary,
                    std::uint64_t hash = 7) const {
    ShardWriter writer(folder_ / name, vocabulary, hash);
    writer.begin_document();
    writer.append(std::span(tokens).first(1));
    writer.begin_document();
    writer.append(std::span(tokens).subspan(1));
    writer.finish();
    return (folder_ / name).string();
  }
  static Tokens all(const TokenFile& file) {
    Tokens tokens(static_cast<std::size_t>(file.count));
    file.read(0, tokens);
    return tokens;
  }
  std::string refusal(const std::string& dataset) const {
    return message_of([&] { open_splits(dataset, {.data_dir = folder_.path().string()}); });
  }

  test::TempDir folder_;
};

TEST_F(TokenFiles, AShardKeepsTokensDocumentsVocabularyAndHash) {
  for (const std::int64_t vocabulary : {65'536, 65'537}) {
    const TokenFile file = open_token_file(shard("a.tokens", {5, 65'535, 0, 17}, vocabulary));
    EXPECT_EQ(all(file), (Tokens{5, 65'535, 0, 17}));
    EXPECT_EQ(file.type, vocabulary == 65'536 ? TokenType::u16 : TokenType::i32);
    EXPECT_EQ(file.vocabulary, vocabulary);
    EXPECT_EQ(file.hash, 7U);
    EXPECT_THAT(file.documents, ElementsAre(0, 1));
    verify(file);
  }
}

TEST_F(TokenFiles, APatternTakesAllOfAFolderOfShards) {
  shard("0.tokens", Tokens(40, 1), 100);
  shard("1.tokens", Tokens(40, 1), 100);
  write("progress.json", "{}");
  write("2.tokens.tmp", "half");
  const auto size = [&](const std::string& pattern) {
    const Splits splits =
        open_splits("tokens:" + pattern + ",context=4", {.data_dir = folder_.path().string()});
    return splits.train->size() + splits.test->size();
  };
  EXPECT_EQ(size("*"), size("*.tokens"));
  write("README", "of tokens");
  EXPECT_THAT(refusal("tokens:*,context=4"),
              AllOf(HasSubstr("README: at byte 0"), HasSubstr("a pattern that leaves other files out")));
  EXPECT_THAT(refusal("tokens:progress.json,context=4"), HasSubstr("progress.json: at byte 0"));
}

TEST_F(TokenFiles, WhatIsNotFinishedIsNotThere) {
  {
    ShardWriter writer(folder_ / "a.tokens", 100, 0);
    writer.append(Tokens{1, 2});
    EXPECT_THAT(message_of([&] { writer.append(Tokens{100}); }),
                AllOf(HasSubstr("below 100"), HasSubstr("got 100")));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST_F(TokenFiles, ABrokenShardIsRefusedByPlace) {
  const std::string path = shard("a.tokens", {1, 2, 3}, 100), whole = read_file(path);
  const auto broken = [&](std::size_t at, char byte) {
    std::string content = whole;
    content[at] = byte;
    return message_of([&] { verify(open_token_file(write("b.tokens", content))); });
  };
  EXPECT_THAT(broken(8, 9),
              AllOf(HasSubstr("b.tokens: at byte 8"), HasSubstr("version 1"), HasSubstr("found 9")));
  EXPECT_THAT(broken(20, 1), HasSubstr("CRC-32"));
  EXPECT_THAT(broken(64, 9), AllOf(HasSubstr("at byte 64"), HasSubstr("tokens with CRC-32")));
  EXPECT_THAT(broken(whole.size() - 1, 1), HasSubstr("an index of documents"));
  EXPECT_THAT(message_of([&] { open_token_file(write("b.tokens", whole.substr(0, whole.size() - 1))); }),
              AllOf(HasSubstr(fmt::format("at byte {}", whole.size() - 1)),
                    HasSubstr("for 3 tokens and 2 documents")));
  EXPECT_THAT(message_of([&] { open_token_file(write("b.tokens", whole.substr(0, 40))); }),
              HasSubstr("header of 64 bytes"));
}

TEST_F(TokenFiles, ReadsLlmcs) {
  const std::string tokens = raw<std::uint16_t>({50'256, 1, 2}),
                    header = padded(raw<std::int32_t>({20240520, 1, 3}));
  const TokenFile file = open_token_file(write("a.bin", header + tokens));
  EXPECT_EQ(all(file), (Tokens{50'256, 1, 2}));
  EXPECT_EQ(file.vocabulary, 50'257);
  const TokenFile llama = open_token_file(
      write("l.bin", padded(raw<std::int32_t>({20240801, 7, 2})) + raw<std::uint32_t>({128'000, 4})));
  EXPECT_EQ(all(llama), (Tokens{128'000, 4}));
  EXPECT_THAT(message_of([&] {
                open_token_file(write("v.bin", padded(raw<std::int32_t>({20240520, 2, 3})) + tokens));
              }),
              AllOf(HasSubstr("at byte 4"), HasSubstr("version 1"), HasSubstr("found 2")));
  EXPECT_THAT(message_of([&] { open_token_file(write("s.bin", header + tokens.substr(2))); }),
              AllOf(HasSubstr("at byte 1028"), HasSubstr("1030 bytes")));
}

TEST_F(TokenFiles, ReadsNanoGptsAndLlmqs) {
  EXPECT_EQ(all(open_token_file(write("n.bin", raw<std::uint16_t>({3, 65'535})))), (Tokens{3, 65'535}));
  EXPECT_THAT(message_of([&] { open_token_file(write("h.bin", "abc")); }), HasSubstr("half of one"));
  EXPECT_THAT(message_of([&] { open_token_file(write("n.txt", "abcd")); }), HasSubstr("magic number"));
  const auto llmq = [](std::int32_t version, std::int32_t masks) {
    return padded("BIN.TOK\n" + raw<std::int32_t>({version, 4, 2, 70'000, masks})) +
           raw<std::int32_t>({1, 69'999});
  };
  const TokenFile file = open_token_file(write("q.bin", llmq(2, 0)));
  EXPECT_EQ(all(file), (Tokens{1, 69'999}));
  EXPECT_EQ(file.vocabulary, 70'000);
  EXPECT_THAT(message_of([&] { open_token_file(write("q.bin", llmq(3, 0))); }), HasSubstr("version 2"));
  EXPECT_THAT(message_of([&] { open_token_file(write("q.bin", llmq(2, 1))); }), HasSubstr("loss masks"));
}

TEST_F(TokenFiles, ReadsMegatronsByTokensOrIndex) {
  const std::string index = std::string("MMIDIDX\0\0", 9) + raw<std::uint64_t>({1}) + "\x04" +
                            raw<std::uint64_t>({3, 3}) + raw<std::int32_t>({2, 1, 2}) +
                            raw<std::int64_t>({0, 8, 12}) + raw<std::int64_t>({0, 2, 3});
  write("m.idx", index);
  const std::string path = write("m.bin", raw<std::int32_t>({1, 2, 3, 70'000, 5}));
  for (const std::string& given : {path, (folder_ / "m.idx").string()}) {
    const TokenFile file = open_token_file(given);
    EXPECT_EQ(all(file), (Tokens{1, 2, 3, 70'000, 5}));
    EXPECT_THAT(file.documents, ElementsAre(0, 3));
  }
  write("m.bin", raw<std::int32_t>({1, 2, 3}));
  EXPECT_THAT(message_of([&] { open_token_file(path); }), AllOf(HasSubstr("m.bin"), HasSubstr("20 bytes")));
}

TEST_F(TokenFiles, WindowsOfAllShardsAreOneSource) {
  Tokens first(11), second(7);
  std::iota(first.begin(), first.end(), 0);
  std::iota(second.begin(), second.end(), 50);
  shard("a.tokens", first, 100);
  shard("b.tokens", second, 100);
  shard("t.tokens", first, 100);
  const auto open = [&](const std::string& settings) {
    return open_splits("tokens:[ab].tokens," + settings, {.data_dir = folder_.path().string()});
  };
  const Splits splits = open("context=3,test=t.tokens");
  EXPECT_EQ(splits.train->size(), 5);  // 3 of 11 tokens, 2 of 7
  EXPECT_EQ(describe(splits.train->fields()), "tokens int32 [4]");
  EXPECT_EQ(splits.train->fields()[0].values, 100);
  EXPECT_THAT(Sample(*splits.train, 2).values<std::int32_t>("tokens"), ElementsAre(6, 7, 8, 9));
  EXPECT_THAT(Sample(*splits.train, 4).values<std::int32_t>("tokens"), ElementsAre(53, 54, 55, 56));
  const Splits overlapping = open("context=3,stride=1,test=t.tokens");
  EXPECT_EQ(overlapping.train->size(), 8 + 4);
  EXPECT_THAT(Sample(*overlapping.train, 8).values<std::int32_t>("tokens"), ElementsAre(50, 51, 52, 53));
  EXPECT_EQ(open("context=3,split=0.8").train->size(), 4);
}

TEST_F(TokenFiles, AnotherVocabularyIsRefusedByName) {
  shard("a.tokens", {1, 2, 3, 4}, 100, 7);
  shard("b.tokens", {1, 2, 3, 4}, 100, 8);
  shard("c.tokens", {1, 2, 3, 4}, 200, 7);
  write("t.json", test::tokenizer_json({}));
  write("n.bin", raw<std::uint16_t>({1, 2, 3, 90, 5, 6, 7, 8, 9, 10}));
  EXPECT_THAT(refusal("tokens:[ab].tokens,context=1"),
              AllOf(HasSubstr("b.tokens"), HasSubstr("0000000000000007"), HasSubstr("0000000000000008")));
  EXPECT_THAT(refusal("tokens:a.tokens,context=1,tokenizer=t.json"),
              AllOf(HasSubstr("a.tokens"), HasSubstr("t.json")));
  EXPECT_THAT(refusal("tokens:[ac].tokens,context=1"),
              AllOf(HasSubstr("c.tokens"), HasSubstr("below 100"), HasSubstr("200")));
  EXPECT_THAT(refusal("tokens:n.bin,context=1"), AllOf(HasSubstr("vocabulary=N"), HasSubstr("nanoGPT's")));
  EXPECT_THAT(refusal("tokens:nothing*,context=1"), HasSubstr("nothing*"));
  EXPECT_THAT(refusal("tokens:a.tokens,context=9,test=a.tokens"),
              HasSubstr("more tokens than the context, 9, got 4"));
  const Splits splits =
      open_splits("tokens:n.bin,context=1,vocabulary=50,split=0.5", {.data_dir = folder_.path().string()});
  EXPECT_THAT(message_of([&] {
                for (std::int64_t i = 0; i < splits.train->size(); ++i) Sample(*splits.train, i);
                for (std::int64_t i = 0; i < splits.test->size(); ++i) Sample(*splits.test, i);
              }),
              AllOf(HasSubstr("n.bin"), HasSubstr("from 0 to 49, got 90")));
}

TEST_F(TokenFiles, TextIsTokenizedOnTheWay) {
  write("t.json", test::tokenizer_json({}));
  write("book.txt", "hello hello hello hello hello hello hello hello hello hello");
  write("bad.txt", "hello \xff");
  const Splits splits = open_splits("text:book.txt,context=2,tokenizer=t.json,test=book.txt",
                                    {.data_dir = folder_.path().string()});
  EXPECT_THAT(Sample(*splits.train, 0).values<std::int32_t>("tokens"), ElementsAre(259, ' ', 259));
  EXPECT_EQ(splits.train->fields()[0].values, 301);
  EXPECT_THAT(refusal("text:bad.txt,context=2,tokenizer=t.json"),
              AllOf(HasSubstr("bad.txt: at byte 6"), HasSubstr("UTF-8")));
}

}  // namespace
}  // namespace dtrain
