// `dtrain tokenize`: killed in the middle, run again, and what it wrote trained on.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <thread>

#include "tests/support/process.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/data/tokens/small_tokenizer.h"

namespace dtrain::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class Tokenize : public testing::Test {
 protected:
  Tokenize() {
    write_file(folder_ / "tokenizer.json", tokenizer_json({}));
    for (int file = 0; file < 6; ++file) {
      std::string lines;
      for (int i = 0; lines.size() < (3U << 20U); ++i)
        lines += fmt::format("{{\"text\": \"hello world {} {}{}\"}}\n", file, i,
                             std::string(static_cast<std::size_t>(i % 90), 'z'));
      write_file(folder_ / fmt::format("{}.jsonl", file), lines);
    }
  }
  std::vector<std::string> command(const std::string& output) const {
    return {program("dtrain"), "tokenize",      "--tokenizer", path("tokenizer.json"),
            "--input",         path("*.jsonl"), "--output",    path(output),
            "--shard-tokens",  "300000",        "--threads",   "2"};
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::map<std::string, std::string> shards(const std::string& output) const {
    std::map<std::string, std::string> found;
    for (const auto& entry : fs::directory_iterator(folder_ / output))
      if (entry.path().extension() == ".tokens")
        found[entry.path().filename().string()] = read_file(entry.path());
    return found;
  }

  TempDir folder_;
};

TEST_F(Tokenize, KilledAndRunAgainItWritesTheSameShards) {
  const RunResult whole = run(command("whole"), limited_to(std::chrono::seconds(60)));
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  RunOptions options = limited_to(std::chrono::seconds(60));
  options.while_running = [&](pid_t pid) {
    for (int i = 0; i < 20'000 && !fs::exists(folder_ / "killed" / "00001.tokens"); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ::kill(pid, SIGKILL);  // nothing, where it was faster
  };
  run(command("killed"), options);
  EXPECT_TRUE(fs::exists(folder_ / "killed" / "00001.tokens"));
  const RunResult again = run(command("killed"), limited_to(std::chrono::seconds(60)));
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("resumed"));
  EXPECT_EQ(shards("killed"), shards("whole"));
  EXPECT_GT(shards("whole").size(), 3U);

  const RunResult checked = run({program("dtrain"), "tokenize", "--verify", path("killed/*")},
                                limited_to(std::chrono::seconds(60)));
  EXPECT_EQ(checked.exit_code, 0) << checked.err;
  EXPECT_THAT(checked.out, HasSubstr("00001.tokens: a dtrain shard"));
  const RunResult trained = run({program("dtrain"),
                                 "train",
                                 "--dataset",
                                 "tokens:killed/*.tokens,context=8,tokenizer=tokenizer.json",
                                 "--data-dir",
                                 folder_.path().string(),
                                 "--model",
                                 "transformer",
                                 "--width",
                                 "8",
                                 "--heads",
                                 "2",
                                 "--layers",
                                 "1",
                                 "--global-batch-size",
                                 "4",
                                 "--max-steps",
                                 "2",
                                 "--run-dir",
                                 path("run")},
                                limited_to(std::chrono::seconds(120)));
  EXPECT_EQ(trained.exit_code, 0) << trained.err;
}

TEST_F(Tokenize, MakesATokenizerAndUsesIt) {
  const auto limit = limited_to(std::chrono::seconds(60));
  const auto tokenize = [&](std::vector<std::string> options) {
    std::vector<std::string> arguments = {program("dtrain"), "tokenize", "--input", path("0.jsonl")};
    arguments.insert(arguments.end(), options.begin(), options.end());
    return run(arguments, limit);
  };
  const RunResult made = tokenize({"--train", "300", "--output", path("own")});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_THAT(made.out, HasSubstr("own/tokenizer.json: 300 tokens, 43 merges"));
  const RunResult used = tokenize({"--tokenizer", path("own"), "--output", path("shards")});
  EXPECT_EQ(used.exit_code, 0) << used.err;
  EXPECT_EQ(shards("shards").size(), 1U);

  const RunResult again = tokenize({"--train", "400", "--output", path("own")});
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_THAT(again.err, HasSubstr("expected a folder without a tokenizer.json"));
  const RunResult both = tokenize({"--train", "400", "--tokenizer", path("own"), "--output", path("other")});
  EXPECT_EQ(both.exit_code, 2);
  EXPECT_FALSE(fs::exists(folder_ / "other"));
}

TEST_F(Tokenize, RefusesWithOneLineAndWritesNoShard) {
  write_file(folder_ / "0.jsonl", "{\"text\": \"hello\"}\n{\"text\": 5}\n");
  const RunResult result = run(command("out"), limited_to(std::chrono::seconds(60)));
  EXPECT_EQ(result.exit_code, 5);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("0.jsonl: at byte 18"), HasSubstr("an object with a text \"text\"")));
  EXPECT_TRUE(shards("out").empty());
}

TEST_F(Tokenize, SaysWhatToMakeOfParquetAndOfChats) {
  const auto refusal = [&](const std::string& input, int code) {
    std::vector<std::string> arguments = command("out");
    *(std::ranges::find(arguments, "--input") + 1) = path(input);
    const RunResult result = run(arguments, limited_to(std::chrono::seconds(60)));
    EXPECT_EQ(result.exit_code, code) << result.err;
    EXPECT_TRUE(!fs::exists(folder_ / "out") || shards("out").empty());
    return result.err;
  };
  write_file(folder_ / "a.parquet", "PAR1");
  EXPECT_THAT(refusal("a.parquet", 2), AllOf(HasSubstr("a.parquet: expected *.txt or *.jsonl, got Parquet"),
                                             HasSubstr("a.jsonl.gz\", orient=\"records\", lines=True")));
  write_file(folder_ / "chat.jsonl", R"({"messages": [{"role": "user", "content": "hello"}]})");
  EXPECT_THAT(refusal("chat.jsonl", 5),
              AllOf(HasSubstr("chat.jsonl: at byte 0"), HasSubstr("as a prompt and its answer as a text")));
}

}  // namespace
}  // namespace dtrain::test
