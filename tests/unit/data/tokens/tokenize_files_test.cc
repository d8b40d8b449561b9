// Text files to shards: the same tokens for any number of threads and however often it was stopped.
#include "runtime/data/tokens/shards/tokenize_files.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/data/tokens/shards/document_reader.h"
#include "runtime/data/tokens/shards/token_file.h"
#include "tests/support/message_of.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/data/tokens/small_tokenizer.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;
using test::message_of;
using test::read_file;
using test::write_file;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Tokens = std::vector<std::int32_t>;

class TokenizeFiles : public ::testing::Test {
 protected:
  TokenizeFiles() {
    write_file(folder_ / "t.json", test::tokenizer_json({}));
    tokenizer_ = open_tokenizer((folder_ / "t.json").string());
  }
  std::string write(const std::string& name, const std::string& content) const {
    write_file(folder_ / name, content);
    return (folder_ / name).string();
  }
  /// A text of about four pieces, all of its lines different.
  std::string long_text() const {
    std::string text;
    for (int i = 0; text.size() < (4U << 20U); ++i)
      text += fmt::format("hello {} world, héllo{}\n", i, i % 7 == 0 ? "\n\n  x" : "");
    return text;
  }
  /// A thousand documents a file.
  std::vector<std::string> many_documents() const {
    std::vector<std::string> paths;
    for (int file = 0; file < 3; ++file) {
      std::string lines;
      for (int i = 0; i < 1000; ++i)
        lines += fmt::format("{{\"id\": {}, \"text\": \"hello {} {}\"}}\n", i, i,
                             std::string(static_cast<std::size_t>(i % 50) * 40, 'w'));
      paths.push_back(write(fmt::format("d{}.jsonl", file), lines));
    }
    return paths;
  }
  TokenizeRequest request(std::vector<std::string> inputs, const std::string& output) const {
    TokenizeRequest asked;
    asked.tokenizer = tokenizer_;
    asked.inputs = std::move(inputs);
    asked.output = folder_ / output;
    asked.end_token = tokenizer_->end_of_text();
    return asked;
  }
  /// All shards' bytes, by name.
  std::map<std::string, std::string> shards(const std::string& output) const {
    std::map<std::string, std::string> found;
    for (const auto& entry : fs::directory_iterator(folder_ / output))
      if (entry.path().extension() == ".tokens")
        found[entry.path().filename().string()] = read_file(entry.path());
    return found;
  }

  test::TempDir folder_;
  std::shared_ptr<const Tokenizer> tokenizer_;
};

TEST_F(TokenizeFiles, ALongTextInPiecesGivesTheTokensOfTheWhole) {
  const std::string text = long_text();
  const TokenizeProgress done = tokenize_files(request({write("long.txt", text)}, "out"));
  Tokens wanted;
  Encoder(tokenizer_).encode(text, wanted);
  wanted.push_back(300);
  const TokenFile file = open_token_file((folder_ / "out" / "00000.tokens").string());
  Tokens tokens(static_cast<std::size_t>(file.count));
  file.read(0, tokens);
  EXPECT_TRUE(tokens == wanted);
  EXPECT_EQ(file.documents, std::vector<std::int64_t>{0});
  EXPECT_EQ(file.hash, tokenizer_->hash());
  EXPECT_EQ(done.bytes, static_cast<std::int64_t>(text.size()));
  verify(file);
}

TEST_F(TokenizeFiles, ShardsAreTheSameForAnyNumberOfThreads) {
  const auto inputs = many_documents();
  for (const int threads : {1, 3}) {
    TokenizeRequest asked = request(inputs, fmt::format("out{}", threads));
    asked.threads = threads;
    asked.shard_tokens = 500'000;
    const TokenizeProgress done = tokenize_files(asked);
    EXPECT_GT(done.shards, 1);
    EXPECT_FALSE(done.resumed);
  }
  EXPECT_EQ(shards("out1"), shards("out3"));
  std::size_t documents = 0;
  for (const auto& [name, content] : shards("out1"))
    documents += open_token_file((folder_ / "out1" / name).string()).documents.size();
  EXPECT_EQ(documents, 3000U);
}

TEST_F(TokenizeFiles, GoesOnWhereTheLastWholeShardEnded) {
  const auto inputs = many_documents();
  TokenizeRequest asked = request(inputs, "whole");
  asked.shard_tokens = 400'000;
  tokenize_files(asked);
  asked.output = folder_ / "stopped";
  int stops = 0;
  asked.on_progress = [&](const TokenizeProgress& progress) {
    if (progress.shards > stops) {
      ++stops;
      throw Error("stopped");
    }
  };
  std::string message;
  do message = message_of([&] { EXPECT_TRUE(tokenize_files(asked).resumed); });
  while (message == "stopped");
  EXPECT_EQ(message, "no error");
  EXPECT_GT(stops, 0);
  EXPECT_EQ(shards("stopped"), shards("whole"));
  asked.shard_tokens = 1000;
  EXPECT_THAT(
      message_of([&] { tokenize_files(asked); }),
      AllOf(HasSubstr("stopped"), HasSubstr("1000 tokens a shard"), HasSubstr("400000 tokens a shard")));
}

// Half of the shards from one text and half from another would be no text's.
TEST_F(TokenizeFiles, InputsThatHaveChangedAtTheSameSizeAreRefused) {
  const auto inputs = many_documents();
  const TokenizeRequest asked = request(inputs, "out");
  tokenize_files(asked);
  const std::string before = read_file(inputs[1]);
  std::string after = before;
  after[after.rfind("hello")] = 'j';
  write_file(inputs[1], after);
  EXPECT_THAT(message_of([&] { tokenize_files(asked); }),
              AllOf(HasSubstr("out: expected the inputs that this conversion was started with"),
                    HasSubstr("d1.jsonl with other content of the same size")));
  write_file(inputs[1], before);
  EXPECT_TRUE(tokenize_files(asked).resumed);
}

TEST_F(TokenizeFiles, AConversionThatAnOlderVersionBeganGoesOn) {
  const TokenizeRequest asked = request(many_documents(), "out");
  tokenize_files(asked);
  const fs::path path = folder_ / "out" / "progress.json";
  std::string progress = read_file(path);
  const std::size_t begin = progress.find("\"inputs\""), end = progress.find(']', begin);
  write_file(path, progress.erase(begin, progress.find('"', end) - begin));
  EXPECT_TRUE(tokenize_files(asked).resumed);
}

TEST_F(TokenizeFiles, PromptsAreEncodedAloneAndNotAskedFor) {
  std::string lines;
  Tokens wanted;
  std::vector<std::uint8_t> asked;
  Encoder encoder(tokenizer_);
  for (int i = 0; i < 500; ++i) {
    const std::string prompt = i % 5 == 0 ? "" : fmt::format("hello {}", i),
                      text = fmt::format(" world {}", i);
    lines += fmt::format("{{\"prompt\": \"{}\", \"completion\": \"{}\"}}\n", prompt, text);
    encoder.encode(prompt, wanted);
    asked.resize(wanted.size(), 0);
    encoder.encode(text, wanted);
    wanted.push_back(300);
    asked.resize(wanted.size(), 1);
  }
  TokenizeRequest request = this->request({write("chat.jsonl", lines)}, "out");
  request.fields = {"completion", "prompt"};
  tokenize_files(request);
  const TokenFile file = open_token_file((folder_ / "out" / "00000.tokens").string());
  Tokens tokens(static_cast<std::size_t>(file.count));
  file.read(0, tokens);
  EXPECT_TRUE(tokens == wanted);
  EXPECT_EQ(file.documents.size(), 500U);
  std::vector<std::uint8_t> found(tokens.size());
  file.read_asked(0, found);
  EXPECT_TRUE(found == asked);
  for (const std::int64_t first : {1, 7, 8, 64, 901}) {
    found.resize(100);
    file.read_asked(first, found);
    EXPECT_TRUE(std::equal(found.begin(), found.end(), asked.begin() + first)) << first;
  }
  request.fields.prompt = "";
  EXPECT_THAT(message_of([&] { tokenize_files(request); }), HasSubstr("prompt prompt"));
  request.output = folder_ / "out2";
  request.fields = {"completion", "question"};
  EXPECT_THAT(message_of([&] { tokenize_files(request); }), HasSubstr("an object with a text \"question\""));
  request.inputs = {write("a.txt", "hello")};
  EXPECT_THAT(message_of([&] { tokenize_files(request); }),
              HasSubstr("expected *.jsonl, which have prompts"));
}

TEST_F(TokenizeFiles, BadInputIsNamedByFileAndPlace) {
  const auto refusal = [&](const std::string& name, const std::string& content) {
    fs::remove_all(folder_ / "bad");
    const std::string message = message_of([&] { tokenize_files(request({write(name, content)}, "bad")); });
    EXPECT_TRUE(!fs::exists(folder_ / "bad") || shards("bad").empty());
    return message;
  };
  EXPECT_THAT(refusal("a.txt", "hello \xff"),
              AllOf(HasSubstr("a.txt: at byte 6"), HasSubstr("UTF-8"), HasSubstr("0xff")));
  EXPECT_THAT(refusal("a.txt", ""), AllOf(HasSubstr("a.txt: at byte 0"), HasSubstr("an empty one")));
  EXPECT_THAT(refusal("a.jsonl", "{\"text\": \"x\"}\n{\"text\": \"\"}\n"),
              AllOf(HasSubstr("a.jsonl: at byte 14"), HasSubstr("an empty one")));
  EXPECT_THAT(refusal("a.jsonl", "{\"text\": \"x\"}\n{\"body\": \"x\"}\n"),
              AllOf(HasSubstr("at byte 14"), HasSubstr("text \"text\""), HasSubstr("body")));
  EXPECT_THAT(refusal("a.jsonl", "{\"text\": \n"), HasSubstr("a line of JSON"));
  EXPECT_THAT(refusal("a.pdf", "x"), HasSubstr("*.txt or *.jsonl"));
  EXPECT_THAT(message_of([&] { tokenize_files(request({(folder_ / "none.txt").string()}, "bad2")); }),
              HasSubstr("none.txt"));
  write_file(folder_ / "a.txt", "x");
  EXPECT_THAT(message_of([&] { tokenize_files(request({(folder_ / "a.txt").string()}, ".")); }),
              HasSubstr("an empty folder"));
}

}  // namespace
}  // namespace dtrain
