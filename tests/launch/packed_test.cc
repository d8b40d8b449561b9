// Documents with prompts packed into windows: a token that is asked for counts the same wherever it is, in
// whichever window, pass and worker.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "runtime/data/tokens/shards/token_shard.h"
#include "runtime/data/tokens/shards/token_source.h"
#include "tests/launch/trained.h"
#include "tests/support/sample.h"
#include "tests/support/temp_dir.h"
#include "tests/support/training.h"
#include "tests/unit/data/npy_files.h"

namespace dtrain::test {
namespace {

class Packed : public testing::TestWithParam<std::string> {
 protected:
  /// Documents of 1 to 29 tokens in two shards, of which prompts of up to 10 are not asked for.
  Packed() {
    for (int part = 0; part < 2; ++part) {
      ShardWriter shard(folder_ / fmt::format("{}.tokens", part), 64, 7);
      for (int i = part; i < 1200; i += 2) {
        shard.begin_document();
        for (int at = 0; at <= i * i % 29; ++at)
          shard.append(std::vector<std::int32_t>{(i + at * at) % 64}, at >= i % 11);
      }
      shard.finish();
    }
  }
  Trained trained(const std::string& name, int workers, std::vector<std::string> more) {
    TrainingRun run{
        .start = Start::alone,
        .launcher_arguments = {},
        .arguments = {"--model", GetParam(), "--dataset", data_, "--global-batch-size", "64", "--max-steps",
                      "5", "--log-every", "1", "--eval-every", "0", "--lr", "0.1", "--threads", "1"},
        .run_dir = folder_ / name,
        .options = limited_to(std::chrono::seconds(200))};
    if (workers > 1) more.insert(more.end(), {"--thread-workers", std::to_string(workers)});
    run.arguments.insert(run.arguments.end(), more.begin(), more.end());
    const RunResult result = train(run);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.exit_code == 0 ? trained_in(run.run_dir) : Trained{};
  }

  /// The windows of the shards as three arrays.
  std::string arrays() const {
    std::vector<TokenFile> files;
    for (const char* const name : {"0.tokens", "1.tokens"})
      files.push_back(open_token_file((folder_ / name).string()));
    const TokenSource source(
        "shards", files,
        {.context = 24, .stride = 24, .vocabulary = 64, .documents = DocumentWindows::whole});
    std::vector<std::int32_t> tokens, documents;
    std::vector<std::uint8_t> asked;
    const auto append = [](auto& to, const auto& values) {
      to.insert(to.end(), values.begin(), values.end());
    };
    for (std::int64_t i = 0; i < source.size(); ++i) {
      const Sample sample(source, i);
      append(tokens, sample.values<std::int32_t>("tokens"));
      append(documents, sample.values<std::int32_t>("documents"));
      append(asked, sample.values<std::uint8_t>("asked"));
    }
    const std::string shape = fmt::format("({}, 25)", source.size());
    write_file(folder_ / "tokens.npy", npy_bytes("<i4", shape, tokens));
    write_file(folder_ / "documents.npy", npy_bytes("<i4", shape, documents));
    write_file(folder_ / "asked.npy", npy_bytes("|u1", shape, asked));
    documents[5 * 25 + 7] = 9;
    write_file(folder_ / "wrong.npy", npy_bytes("<i4", shape, documents));
    return fmt::format("npy:tokens={0}/tokens.npy,documents={0}/documents.npy,asked={0}/asked.npy,split=0.9",
                       folder_.path().string());
  }
  RunResult dtrain(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), program("dtrain"));
    return run(arguments, limited_to(std::chrono::seconds(120)));
  }

  TempDir folder_;
  std::string data_ = "tokens:" + (folder_ / "*.tokens").string() + ",context=24,documents=whole";
};

TEST_P(Packed, ArraysOfTheSameWindowsTrainTheSameBits) {
  const Trained expected = trained("shards", 1, {});
  const std::string arrays = this->arrays();
  data_ = arrays + ",vocabulary=64";
  EXPECT_EQ(difference(trained("arrays", 1, {}), expected).weights, 0);
  const auto refusal = [&](const std::string& data) {
    return dtrain({"train", "--model", GetParam(), "--dataset", data, "--batch-size", "64", "--max-steps",
                   "20", "--run-dir", (folder_ / "x").string()})
        .err;
  };
  EXPECT_THAT(refusal(arrays), testing::HasSubstr("arrays with vocabulary=N"));
  EXPECT_THAT(refusal(arrays + ",vocabulary=40"),
              testing::HasSubstr("field tokens to hold integers from 0 to 39"));
  EXPECT_THAT(refusal(fmt::format("npy:tokens={0}/tokens.npy,documents={0}/wrong.npy,vocabulary=64,split=0.9",
                                  folder_.path().string())),
              testing::ContainsRegex("sample 5: expected documents to say .* at token 7, got 9"));
}

// A file for use takes one text a sample: several of them share one in training only.
TEST_P(Packed, AreExportedAsANetworkOfTokensAlone) {
  trained("run", 1, {});
  const RunResult exported = dtrain({"export", (folder_ / "run").string(), (folder_ / "a.onnx").string()});
  ASSERT_EQ(exported.exit_code, 0) << exported.err;
  const std::string file = read_file(folder_ / "a.onnx");
  EXPECT_THAT(file, testing::HasSubstr("tokens"));
  // Its name is in the text of --dataset, which the metadata keep, but in no input.
  EXPECT_THAT(file, testing::Not(testing::HasSubstr(std::string("\x09") + "documents")));
}

TEST_P(Packed, TokensWeighTheSameForAnyAccumulationAndAnyWorkers) {
  const Trained expected = trained("one", 1, {});
  for (const int workers : {1, 2, 4}) {
    for (const int accumulate : {1, 4, 16}) {
      if (workers * accumulate == 1) continue;
      const std::string name = fmt::format("{} workers, accumulation {}", workers, accumulate);
      const Difference found =
          difference(trained(name, workers, {"--accumulate", std::to_string(accumulate)}), expected);
      EXPECT_LE(found.losses, 1e-6) << name;
      EXPECT_LE(found.weights, 1e-6) << name;
    }
  }
}

TEST_P(Packed, VirtualWorkersGiveTheSameBitsForAnyWorkers) {
  const std::vector<std::string> parts = {"--virtual-workers", "4"};
  const Trained expected = trained("1", 1, parts);
  for (const int workers : {2, 4})
    EXPECT_EQ(difference(trained(std::to_string(workers), workers, parts), expected).weights, 0)
        << workers << " workers";
}

// Every form shows the same texts, the first ranks with outputs being asked, and trains as without.
TEST_P(Packed, TextsAreShownInEveryForm) {
  const Trained without = trained("without", 1, {});
  const auto shown = [&](const std::string& name, int workers, std::vector<std::string> more) {
    more.insert(more.end(), {"--sample-every", "2"});
    const Difference found = difference(trained(name, workers, more), without);
    EXPECT_LE(found.weights, 1e-6) << name;
    std::vector<std::string> texts;
    std::ifstream metrics(folder_ / name / "metrics.jsonl");
    for (std::string line; std::getline(metrics, line);) {
      if (const auto at = line.find("\"event\":\"sample\""); at != std::string::npos)
        texts.push_back(line.substr(at, line.rfind("\"start\"") - at));
    }
    return texts;
  };
  const auto expected = shown("alone", 1, {});
  ASSERT_EQ(expected.size(), 2U);
  EXPECT_THAT(expected[0], testing::AllOf(testing::HasSubstr("\"step\":2"), testing::HasSubstr(" → ")));
  EXPECT_NE(expected[0], expected[1]);
  EXPECT_EQ(shown("two", 2, {}), expected);
  EXPECT_EQ(shown("sharded", 2, {"--shard", "parameters"}), expected);
  EXPECT_EQ(shown("tensor", 2, {"--tensor", "2", "--sequence-parallel"}), expected);
  EXPECT_EQ(shown("pipeline", 2, {"--pipeline", "2"}), expected);
}

INSTANTIATE_TEST_SUITE_P(Models, Packed, testing::Values("gpt2-tiny", "llama-tiny"));

}  // namespace
}  // namespace dtrain::test
