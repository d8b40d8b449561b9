// Windows of tokens whose documents count: each says where they begin, and whole ones are cut only where they
// have to be, with each token but a document's first asked for once.
#include "runtime/data/tokens/shards/token_source.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "runtime/base/error.h"
#include "runtime/data/sources/open_source.h"
#include "runtime/data/tokens/shards/token_shard.h"
#include "tests/support/message_of.h"
#include "tests/support/sample.h"
#include "tests/support/temp_dir.h"

namespace dtrain {
namespace {

using test::message_of;
using test::Sample;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Tokens = std::vector<std::int32_t>;

constexpr std::int64_t kVocabulary = 1000;

class Documents : public ::testing::Test {
 protected:
  /// A shard of documents of `lengths`, whose tokens are 1, 2, 3, …
  std::string shard(const std::string& name, const std::vector<int>& lengths) const {
    ShardWriter writer(folder_ / name, kVocabulary, 7);
    std::int32_t token = 0;
    for (const int length : lengths) {
      Tokens document(static_cast<std::size_t>(length));
      for (std::int32_t& each : document) each = ++token;
      writer.begin_document();
      writer.append(document);
    }
    writer.finish();
    return (folder_ / name).string();
  }
  TokenSource source(const std::vector<int>& lengths, std::int64_t context, DocumentWindows how) const {
    return {"here",
            {open_token_file(shard("a.tokens", lengths))},
            {.context = context, .stride = context, .vocabulary = kVocabulary, .documents = how}};
  }
  static Tokens field(const TokenSource& source, std::int64_t index, const char* name) {
    return Sample(source, index).values<std::int32_t>(name);
  }

  test::TempDir folder_;
};

TEST_F(Documents, ApartWindowsAreThoseOfJoinedOnesAndSayWhereDocumentsBegin) {
  const TokenSource apart = source({3, 1, 6, 4}, 4, DocumentWindows::apart);
  ASSERT_EQ(apart.size(), 3);
  EXPECT_EQ(field(apart, 0, "tokens"), (Tokens{1, 2, 3, 4, 5}));
  EXPECT_EQ(field(apart, 0, "documents"), (Tokens{0, 0, 0, 3, 4}));
  EXPECT_EQ(field(apart, 1, "tokens"), (Tokens{5, 6, 7, 8, 9}));
  EXPECT_EQ(field(apart, 1, "documents"), (Tokens{0, 0, 0, 0, 0}));
  EXPECT_EQ(field(apart, 2, "documents"), (Tokens{0, 0, 2, 2, 2}));
  const TokenSource joined = source({3, 1, 6, 4}, 4, DocumentWindows::joined);
  EXPECT_EQ(joined.fields().size(), 1U);
  EXPECT_EQ(field(joined, 2, "tokens"), field(apart, 2, "tokens"));
}

TEST_F(Documents, WholeOnesShareAWindowAsFarAsTheyFitAndTheRestIsPadding) {
  const TokenSource whole = source({3, 2, 4, 13, 2}, 5, DocumentWindows::whole);
  ASSERT_EQ(whole.size(), 5);
  EXPECT_EQ(field(whole, 0, "tokens"), (Tokens{1, 2, 3, 4, 5, 0}));
  EXPECT_EQ(field(whole, 0, "documents"), (Tokens{0, 0, 0, 3, 3, 5}));
  EXPECT_EQ(field(whole, 1, "tokens"), (Tokens{6, 7, 8, 9, 0, 0}));
  EXPECT_EQ(field(whole, 1, "documents"), (Tokens{0, 0, 0, 0, 4, 5}));
  EXPECT_EQ(field(whole, 2, "tokens"), (Tokens{10, 11, 12, 13, 14, 15}));
  EXPECT_EQ(field(whole, 3, "tokens"), (Tokens{15, 16, 17, 18, 19, 20}));
  EXPECT_EQ(field(whole, 4, "tokens"), (Tokens{20, 21, 22, 23, 24, 0}));
  EXPECT_EQ(field(whole, 4, "documents"), (Tokens{0, 0, 0, 3, 3, 5}));
}

TEST_F(Documents, EachTokenButADocumentsFirstIsAskedForOnce) {
  std::vector<int> lengths;
  for (int i = 0; i < 60; ++i) lengths.push_back(1 + i * i % 23);
  for (const std::int64_t context : {1, 2, 7, 8, 22, 23, 100}) {
    const TokenSource whole = source(lengths, context, DocumentWindows::whole);
    std::map<std::int32_t, int> asked;
    for (std::int64_t i = 0; i < whole.size(); ++i) {
      const Tokens tokens = field(whole, i, "tokens"), documents = field(whole, i, "documents");
      EXPECT_EQ(documents[0], 0);
      for (std::size_t at = 1; at < tokens.size(); ++at) {
        if (documents[at] == documents[at - 1]) ++asked[tokens[at]];
      }
    }
    std::int32_t first = 1;
    for (const int length : lengths) {
      EXPECT_EQ(asked.count(first), 0U) << "context " << context;
      for (int i = 1; i < length; ++i) EXPECT_EQ(asked[first + i], 1) << "context " << context;
      first += length;
    }
  }
}

TEST_F(Documents, TokensThatAreNotAskedForAreMarked) {
  const auto write = [&](const std::string& name, bool masked) {
    ShardWriter writer(folder_ / name, kVocabulary, 7);
    for (std::int32_t document = 0; document < 40; ++document) {
      writer.begin_document();
      writer.append(Tokens{document, document + 1, document + 2}, !masked);
      writer.append(Tokens{900, 901});
    }
    writer.finish();
    return open_token_file((folder_ / name).string());
  };
  const TokenFile masked = write("masked.tokens", true), plain = write("plain.tokens", false);
  EXPECT_TRUE(masked.asked.has_value());
  EXPECT_FALSE(plain.asked.has_value());
  verify(masked);
  const WindowOptions options{
      .context = 11, .stride = 11, .vocabulary = kVocabulary, .documents = DocumentWindows::whole};
  const TokenSource source("here", {masked, plain}, options);
  ASSERT_EQ(source.fields().size(), 3U);
  EXPECT_EQ(source.size(), 40);  // of two documents each
  EXPECT_THAT(Sample(source, 7).values<std::uint8_t>("asked"),
              ElementsAre(0, 0, 0, 1, 1, 0, 0, 0, 1, 1, 0, 0));
  EXPECT_THAT(Sample(source, 25).values<std::uint8_t>("asked"),
              ElementsAre(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0));
  EXPECT_EQ(TokenSource("here", {plain}, options).fields().size(), 2U);

  std::string bytes = test::read_file(folder_ / "masked.tokens");
  bytes[bytes.size() - 3] ^= 1;
  test::write_file(folder_ / "broken.tokens", bytes);
  EXPECT_THAT(message_of([&] { verify(open_token_file((folder_ / "broken.tokens").string())); }),
              HasSubstr("what is asked for with CRC-32"));
  test::write_file(folder_ / "broken.tokens", bytes.substr(0, bytes.size() - 8));
  EXPECT_THAT(message_of([&] { open_token_file((folder_ / "broken.tokens").string()); }),
              HasSubstr("bytes for 200 tokens and 40 documents"));
}

TEST_F(Documents, AreRefusedWhereFilesDoNotSayThemOrOptionsDoNotFit) {
  shard("a.tokens", {3, 2, 4, 13, 2});
  const auto refusal = [&](const std::string& dataset) {
    return message_of([&] { open_splits(dataset, {.data_dir = folder_.path().string()}); });
  };
  EXPECT_THAT(refusal("tokens:a.tokens,context=4,documents=all"),
              HasSubstr("documents=joined, apart or whole"));
  EXPECT_THAT(refusal("tokens:a.tokens,context=4,stride=5,documents=whole"),
              HasSubstr("expected no stride for windows of whole documents, got 5"));
  test::write_file(folder_ / "nano.bin", std::string(200, '\1'));
  EXPECT_THAT(refusal("tokens:nano.bin,context=4,documents=apart,vocabulary=300"),
              HasSubstr("expected files that say where documents begin"));
  TokenFile wrong = open_token_file((folder_ / "a.tokens").string());
  wrong.documents.back() = wrong.count + 1;
  EXPECT_THAT(message_of([&] {
                TokenSource(
                    "here", {wrong},
                    {.context = 4, .stride = 4, .vocabulary = 9, .documents = DocumentWindows::apart});
              }),
              HasSubstr("documents one behind the other in 24 tokens"));
}

}  // namespace
}  // namespace dtrain
