// Language models through the program: trained, exported as others publish weights, started from such a
// folder on any form of parallelism, and asked to continue texts; what does not fit is refused in one line,
// with nothing written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "tests/launch/trained.h"
#include "tests/support/json.h"
#include "tests/support/temp_dir.h"
#include "tests/support/training.h"

namespace dtrain::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

class Language : public testing::TestWithParam<std::string> {
 protected:
  Language() {
    write_file(folder_ / "text", learnable_text());
    write_file(folder_ / "prompts", "the quick\nbrown\n");
  }
  std::string at(const std::string& name) const { return (folder_ / name).string(); }
  std::string data() const { return "text:" + at("text") + ",context=16"; }
  RunResult dtrain(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), program("dtrain"));
    return run(arguments, limited_to(std::chrono::seconds(120)));
  }
  RunResult train(const std::string& name, std::vector<std::string> more) const {
    std::vector<std::string> arguments = {"train", "--dataset",    data(),  "--batch-size",
                                          "4",     "--eval-every", "0",     "--log-every",
                                          "1",     "--run-dir",    at(name)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return dtrain(arguments);
  }
  /// A folder of published weights of `model`, trained a little.
  void publish(const std::string& model) {
    const RunResult trained = train("run", {"--model", model, "--max-steps", "3", "--optimizer", "adamw"});
    ASSERT_EQ(trained.exit_code, 0) << trained.err;
    const RunResult exported = dtrain({"export", at("run"), at("published"), "--to", "huggingface"});
    ASSERT_EQ(exported.exit_code, 0) << exported.err;
    EXPECT_THAT(exported.out, HasSubstr("tensors, float32"));
  }
  /// Starts from the folder's weights.
  std::vector<double> tuned(const std::string& name, std::vector<std::string> more) {
    std::vector<std::string> arguments = {
        "--model", "hf:" + at("published"), "--init-from", at("published"), "--max-steps", "3", "--lr",
        "0.05"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const RunResult result = train(name, arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.exit_code == 0 ? losses(at(name)) : std::vector<double>();
  }
  void expect_refused(const RunResult& result, int code, const std::string& text,
                      const std::string& output) const {
    EXPECT_EQ(result.exit_code, code) << result.err;
    EXPECT_THAT(result.err, HasSubstr(text));
    EXPECT_FALSE(fs::exists(at(output))) << output;
  }

  TempDir folder_;
};

TEST_P(Language, WeightsComeBackBitwiseFromTheFolderTheyWentTo) {
  publish(GetParam());
  tuned("again", {"--max-steps", "0", "--seed", "9"});
  const RunResult exported = dtrain({"export", at("again"), at("twice"), "--to", "huggingface"});
  ASSERT_EQ(exported.exit_code, 0) << exported.err;
  for (const char* const file : {"model.safetensors", "config.json"})
    EXPECT_EQ(read_file(folder_ / "twice" / file), read_file(folder_ / "published" / file)) << file;
  EXPECT_EQ(final_weights(at("again")), final_weights(at("run")));
  expect_refused(dtrain({"export", at("again"), at("twice"), "--to", "huggingface"}), 2,
                 "expected a folder that does not exist yet", "none");
}

TEST_P(Language, EveryFormStartsFromPublishedWeights) {
  publish(GetParam());
  const auto expected = tuned("alone", {});
  ASSERT_EQ(expected.size(), 3U);
  std::vector<std::vector<std::string>> forms = {
      {"--tensor", "2", "--thread-workers", "2"},
      {"--shard", "parameters", "--batch-size", "2", "--thread-workers", "2"},
      {"--devices", "cpu:0,cpu:1"},
      {"--recompute"}};
  if (GetParam() != "bert-tiny") {
    forms.push_back({"--tensor", "2", "--sequence-parallel", "--thread-workers", "2"});
    forms.push_back(
        {"--pipeline", "2", "--micro-batches", "2", "--batch-size", "2", "--thread-workers", "2"});
  }
  for (std::size_t i = 0; i < forms.size(); ++i) {
    const auto found = tuned("form" + std::to_string(i), forms[i]);
    ASSERT_EQ(found.size(), 3U) << forms[i][0];
    for (std::size_t step = 0; step < 3; ++step)
      EXPECT_NEAR(found[step], expected[step], 2e-5) << forms[i][0];
  }
}

class Speed : public Language {};

// Tokens count from the run's beginning, rates from the start's.
TEST_F(Speed, IsToldInTokensAndOperations) {
  const std::vector<std::string> common = {"--model", "gpt2-tiny", "--peak-tflops", "0.5", "--threads", "1"};
  const auto summary_of = [&](const std::string& steps, std::vector<std::string> more) {
    more.insert(more.end(), common.begin(), common.end());
    more.insert(more.end(), {"--max-steps", steps});
    const RunResult result = train("run", more);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr(" tokens/s"));
    return Json::parse(read_file(folder_ / "run/summary.json"));
  };
  EXPECT_EQ(summary_of("3", {}).at("tokens"), 3 * 4 * 16);
  const Json summary = summary_of("5", {"--thread-workers", "2"});
  EXPECT_EQ(summary.at("tokens"), (3 * 4 + 2 * 8) * 16);
  const auto number = [&](const char* key) { return summary.at(key).get<double>(); };
  EXPECT_DOUBLE_EQ(number("tokens_per_second"), 16 * number("samples_per_second"));
  EXPECT_DOUBLE_EQ(number("mfu"), number("model_flops_per_second") / (2 * 0.5e12));
  EXPECT_EQ(summary.at("model_flops_formula"), "6 N + 12 L H Q T a token");
}

// Of so many words the logits are never whole where the network is, and are where it is split.
class ManyWords : public Language {};

TEST_F(ManyWords, AreLearnedAlikeByEveryForm) {
  fs::create_directory(folder_ / "many");
  write_file(folder_ / "many" / "config.json",
             R"({"model_type": "gpt2", "vocab_size": 5000, "n_positions": 16, "n_embd": 16, "n_layer": 2,
                 "n_head": 2, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5})");
  const auto losses_of = [this](const std::string& name, std::vector<std::string> more) {
    more.insert(more.begin(), {"--model", "hf:" + at("many"), "--max-steps", "3", "--lr", "0.5"});
    const RunResult result = train(name, more);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.exit_code == 0 ? losses(at(name)) : std::vector<double>();
  };
  const auto expected = losses_of("alone", {});
  ASSERT_EQ(expected.size(), 3U);
  EXPECT_NEAR(expected.front(), std::log(5000.0), 0.2);
  EXPECT_LT(expected.back(), expected.front() - 0.1);
  const std::vector<std::vector<std::string>> forms = {
      {"--tensor", "2", "--thread-workers", "2"},
      {"--pipeline", "2", "--micro-batches", "2", "--batch-size", "2", "--thread-workers", "2"},
      {"--batch-size", "2", "--thread-workers", "2"},
      {"--batch-size", "2", "--accumulate", "2"},
      {"--shard", "parameters", "--batch-size", "2", "--thread-workers", "2"},
      {"--virtual-workers", "2", "--batch-size", "2"},
      {"--devices", "cpu:0,cpu:1"},
      {"--recompute"}};
  for (std::size_t i = 0; i < forms.size(); ++i) {
    const auto found = losses_of("form" + std::to_string(i), forms[i]);
    ASSERT_EQ(found.size(), 3U) << forms[i][0];
    for (std::size_t step = 0; step < 3; ++step)
      EXPECT_NEAR(found[step], expected[step], 2e-5) << forms[i][0];
  }
}

using NextToken = Language;

TEST_P(NextToken, ContinuesTextsFromARunAndFromItsFolder) {
  publish(GetParam());
  const auto generated = [&](const std::string& from, std::vector<std::string> more) {
    std::vector<std::string> arguments = {"generate", at(from), "--tokens", "6"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const RunResult result = dtrain(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  };
  const std::string greedy = generated("run", {"--prompt", "the quick"});
  EXPECT_THAT(greedy, testing::StartsWith("the quick"));
  EXPECT_EQ(greedy.size(), 9U + 6U + 1U);
  EXPECT_EQ(generated("published", {"--prompt", "the quick"}), greedy);
  EXPECT_EQ(generated("run", {"--prompt", "the quick", "--cache", "off"}), greedy);
  EXPECT_THAT(generated("run", {"--prompts", at("prompts")}), HasSubstr(greedy.substr(0, 15)));
  const std::vector<std::string> draws = {"--prompts", at("prompts"), "--temperature", "2",
                                          "--seed",    "4",           "--json"};
  const std::string drawn = generated("run", draws);
  EXPECT_THAT(drawn, HasSubstr("\"prompt\":\"brown\",\"text\":"));
  EXPECT_EQ(generated("published", draws), drawn);
}

TEST_P(NextToken, AnswersQuestionsByWhatIsLikely) {
  const RunResult trained = train("run", {"--model", GetParam(), "--max-steps", "150", "--optimizer", "adamw",
                                          "--lr", "3e-3", "--batch-size", "16"});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const RunResult exported = dtrain({"export", at("run"), at("published"), "--to", "huggingface"});
  ASSERT_EQ(exported.exit_code, 0) << exported.err;
  write_file(folder_ / "questions.jsonl",
             R"({"query": "what small the", "choices": ["ring", "small"], "gold": 1}
{"ctx": "the small what ", "endings": ["ring", "the", "7!"], "label": "0"}
{"query": "what small the", "choices": ["small", "zzz"], "gold": 1}
)");
  const auto answered = [&](const std::string& from, const std::string& batch) {
    const RunResult result =
        dtrain({"eval", "--checkpoint", at(from), "--choices", at("questions.jsonl"), "--batch-size", batch});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  };
  const std::string right = answered("run", "4");
  EXPECT_THAT(right,
              HasSubstr("accuracy 0.6667, with likelihoods divided by letters 0.6667, by tokens 0.6667 "
                        "(3 questions)"));
  EXPECT_EQ(answered("run", "1"), right);
  EXPECT_EQ(answered("published", "4"), right);
  const RunResult bits = dtrain({"eval", "--checkpoint", at("run"), "--json"});
  ASSERT_EQ(bits.exit_code, 0) << bits.err;
  const auto number = [&](const std::string& name) {
    const auto found = bits.out.find("\"" + name + "\":");
    return found == std::string::npos ? -1 : std::stod(bits.out.substr(found + name.size() + 3));
  };
  EXPECT_NEAR(number("bits_per_byte"), number("loss") / std::log(2.0), 1e-9);
  EXPECT_NEAR(number("perplexity"), std::exp(number("loss")), 1e-6);
  EXPECT_EQ(dtrain({"eval", "--checkpoint", at("published"), "--dataset", data(), "--json"}).out, bits.out);
  expect_refused(dtrain({"eval", "--checkpoint", at("published")}), 2, "--dataset: expected a name", "x");
  write_file(folder_ / "bad.jsonl", "{\"query\": \"a\", \"choices\": [\"b\"], \"gold\": 0}\n");
  expect_refused(dtrain({"eval", "--checkpoint", at("run"), "--choices", at("bad.jsonl")}), 5,
                 "expected an object with query, choices", "x");
}

INSTANTIATE_TEST_SUITE_P(Models, Language, testing::Values("gpt2-tiny", "llama-tiny", "bert-tiny"));
INSTANTIATE_TEST_SUITE_P(Models, NextToken, testing::Values("gpt2-tiny", "llama-tiny"));

class Bert : public Language {
 protected:
  /// 128 samples of 16 tokens with two classes, told by which of two tokens is in them; some end in padding.
  std::string samples() {
    std::string tokens, labels;
    for (int i = 0; i < 128; ++i) {
      for (int at = 0; at < 16; ++at)
        append<std::int32_t>(tokens, at == 3 ? 97 + i % 2 : at < 10 + i % 5 ? 32 + at : 0);
      append<std::int64_t>(labels, i % 2);
    }
    write_file(folder_ / "tokens.npy", npy_header("<i4", "(128, 16)") + tokens);
    write_file(folder_ / "labels.npy", npy_header("<i8", "(128,)") + labels);
    return "npy:tokens=" + at("tokens.npy") + ",label=" + at("labels.npy") + ",split=0.5";
  }

 private:
  template <class T>
  static void append(std::string& bytes, T value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  static std::string npy_header(const std::string& dtype, const std::string& shape) {
    std::string header = "{'descr': '" + dtype + "', 'fortran_order': False, 'shape': " + shape + ", }";
    header.resize(117, ' ');
    return std::string("\x93NUMPY\x01\x00\x76\x00", 10) + header + "\n";
  }
};

// The usual way: learn words from a text, then classes with another head.
TEST_P(Bert, LearnsMaskedWordsThenClasses) {
  publish(GetParam());
  EXPECT_THAT(read_file(folder_ / "run" / "metrics.jsonl"), Not(HasSubstr("nan")));
  const std::vector<std::string> tune = {
      "--task",      "classification", "--dataset",    samples(), "--max-steps", "160",
      "--optimizer", "adamw",          "--eval-every", "5",       "--lr",        "1e-3"};
  std::vector<std::string> arguments = tune;
  arguments.insert(arguments.end(), {"--init-partial", "--dropout", "0.1"});
  const auto falling = tuned("classes", arguments);
  ASSERT_EQ(falling.size(), 160U);
  EXPECT_LT(falling.back(), 0.2) << "from " << falling.front();
  EXPECT_EQ(last_accuracy(at("classes")), 1.0);
  const RunResult exported = dtrain({"export", at("classes"), at("classifier"), "--to", "huggingface"});
  ASSERT_EQ(exported.exit_code, 0) << exported.err;
  EXPECT_THAT(read_file(folder_ / "classifier" / "config.json"), HasSubstr("BertForSequenceClassification"));
  const RunResult predicted = dtrain({"predict", at("classes"), "--input", at("tokens.npy")});
  EXPECT_EQ(predicted.exit_code, 0) << predicted.err;
  expect_refused(train("x", {"--model", "hf:" + at("published"), "--task", "language"}), 2,
                 "expected masked-language or classification", "x");
  expect_refused(train("x", {"--model", "gpt2-tiny", "--task", "masked-language"}), 2, "expected language",
                 "x");
  expect_refused(train("x", {"--model", "hf:" + at("published"), "--init-from", at("classifier")}), 5,
                 "missing: cls.predictions", "x");
  expect_refused(train("x", {"--model", "bert-tiny", "--task", "classification", "--dataset", samples()}), 2,
                 "expected samples of tokens whose number is known", "x");
  expect_refused(dtrain({"generate", at("run"), "--prompt", "the"}), 2, "expected a run of a language model",
                 "x");
}

INSTANTIATE_TEST_SUITE_P(Models, Bert, testing::Values("bert-tiny"));

using Adapters = Language;

TEST_P(Adapters, LearnAloneAndAreMergedOnRequest) {
  publish(GetParam());
  const bool gpt2 = GetParam() == "gpt2-tiny";
  const std::vector<std::string> how = {
      "--lora", gpt2 ? "rank=4,on=qkv+down" : "rank=4,on=q+v+gate", "--optimizer", "adamw", "--lr", "0.01"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), how.begin(), how.end());
    return more;
  };
  const auto expected = tuned("alone", with({"--max-steps", "20"}));
  ASSERT_EQ(expected.size(), 20U);
  EXPECT_LT(expected.back(), expected.front());
  const std::vector<std::vector<std::string>> forms = {
      {"--batch-size", "2", "--thread-workers", "2"},
      {"--shard", "parameters", "--batch-size", "2", "--thread-workers", "2"},
      {"--pipeline", "2", "--micro-batches", "2", "--batch-size", "2", "--thread-workers", "2"},
      {"--recompute"}};
  for (std::size_t i = 0; i < forms.size(); ++i) {
    const auto found = tuned("form" + std::to_string(i), with(forms[i]));
    ASSERT_EQ(found.size(), 3U) << forms[i][0];
    for (std::size_t step = 0; step < 3; ++step)
      EXPECT_NEAR(found[step], expected[step], 2e-5) << forms[i][0];
  }
  const auto exported = [&](const std::string& to, const std::string& form) {
    const RunResult result = dtrain({"export", at("alone"), at(to), "--to", form});
    EXPECT_EQ(result.exit_code, 0) << result.err;
  };
  exported("adapters", "peft");
  EXPECT_TRUE(fs::exists(at("adapters") + "/adapter_model.safetensors"));
  EXPECT_THAT(read_file(folder_ / "adapters" / "adapter_config.json"), HasSubstr("\"lora_alpha\": 4.0"));
  exported("merged", "huggingface");
  EXPECT_THAT(read_file(folder_ / "merged" / "model.safetensors"), Not(HasSubstr("lora")));
  const RunResult of_run = dtrain({"generate", at("alone"), "--prompt", "the", "--tokens", "6"});
  EXPECT_EQ(of_run.exit_code, 0) << of_run.err;
  EXPECT_EQ(dtrain({"generate", at("merged"), "--prompt", "the", "--tokens", "6"}).out, of_run.out);
  const RunResult adapted = dtrain({"eval", "--checkpoint", at("alone")});
  EXPECT_EQ(adapted.exit_code, 0) << adapted.err;
  EXPECT_EQ(dtrain({"eval", "--checkpoint", at("merged"), "--dataset", data()}).out, adapted.out);
  expect_refused(dtrain({"export", at("run"), at("none"), "--to", "peft"}), 2, "expected a run with --lora",
                 "none");
  expect_refused(train("x", {"--model", GetParam(), "--lora", "on=w"}), 2, "layers among", "x");
}

// Plain steps: gradients that are some ranks' only, or counted twice, would show.
TEST_P(Adapters, AreSplitAsTheLayersTheyStandBeside) {
  publish(GetParam());
  const std::string on = GetParam() == "gpt2-tiny" ? "qkv+o+up+down" : "q+k+v+o+gate+up+down";
  const auto trained = [&](const std::string& name, std::vector<std::string> more) {
    more.insert(more.end(), {"--lora", "rank=3,alpha=6,on=" + on, "--lr", "0.5", "--max-steps", "6"});
    return tuned(name, more);
  };
  const auto expected = trained("whole", {});
  ASSERT_EQ(expected.size(), 6U);
  EXPECT_LT(expected.back(), expected.front());
  const auto config_of = [&](const std::string& run) {
    const RunResult result = dtrain({"export", at(run), at(run + "-peft"), "--to", "peft"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return read_file(folder_ / (run + "-peft") / "adapter_config.json");
  };
  const std::string config = config_of("whole");
  for (const bool sequence : {false, true}) {
    std::vector<std::string> form = {"--tensor", "2", "--thread-workers", "2"};
    if (sequence) form.emplace_back("--sequence-parallel");
    const std::string name = sequence ? "sequence" : "tensor";
    ASSERT_EQ(trained(name, form).size(), 6U) << name;
    const Difference found = difference(trained_in(at(name)), trained_in(at("whole")));
    EXPECT_LE(found.losses, 2e-5) << name;
    EXPECT_LE(found.weights, 1e-5) << name;
    EXPECT_EQ(config_of(name), config);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Adapters, testing::Values("gpt2-tiny", "llama-tiny"));

using LanguageRefusals = Language;

TEST_P(LanguageRefusals, SayInOneLineWhatDoesNotFit) {
  publish(GetParam());
  const std::string from = at("published"), model = "hf:" + from;
  expect_refused(train("x", {"--model", "lenet", "--init-from", from}), 2, "lenet", "x");
  expect_refused(train("x", {"--model", "transformer", "--init-from", from}), 2,
                 "whose names for transformer are not known", "x");
  expect_refused(train("x", {"--model", "llama-tiny", "--init-from", from}), 5,
                 "missing: model.embed_tokens.weight", "x");
  expect_refused(train("x", {"--model", model, "--init-partial"}), 2,
                 "--init-partial: expected only with --init-from", "x");
  expect_refused(train("x", {"--model", model, "--dataset", "text:" + at("text") + ",context=17"}), 2,
                 "expected samples of at most 16 tokens below 256, got 17 tokens below 256", "x");
  expect_refused(train("x", {"--model", "hf:" + at("nowhere")}), 5, "nowhere/config.json", "x");
  expect_refused(train("x", {"--model", "hf:" + at("run"), "--init-from", from}), 5, "model_type", "x");
  const RunResult trained = train("own", {"--model", "transformer", "--max-steps", "1"});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  expect_refused(dtrain({"export", at("own"), at("x"), "--to", "huggingface"}), 2,
                 "expected a model that is published in that format", "x");
  expect_refused(dtrain({"generate", at("run")}), 2, "expected --prompt TEXT or --prompts FILE", "x");
  expect_refused(dtrain({"generate", at("run"), "--prompt", std::string(20, 'a')}), 2,
                 "expected prompts of 1 to 15 tokens", "x");
}

INSTANTIATE_TEST_SUITE_P(Models, LanguageRefusals, testing::Values("gpt2-tiny"));

}  // namespace
}  // namespace dtrain::test
