#include "worker/language_model.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "models/text/text_model.h"
#include "training/use/commands.h"
#include "training/use/published_weights.h"
#include "training/use/saved_run.h"
#include "worker/commands.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;
using Tokens = std::vector<std::int32_t>;

Tokens ends_of(const std::string& config) {
  const auto json = nlohmann::json::parse(config, nullptr, false);
  Tokens ends;
  if (!json.is_object() || !json.contains("eos_token_id")) return ends;
  const auto& value = json["eos_token_id"];
  if (value.is_number_integer()) ends.push_back(value.get<std::int32_t>());
  if (value.is_array()) {
    for (const auto& each : value) {
      if (each.is_number_integer()) ends.push_back(each.get<std::int32_t>());
    }
  }
  return ends;
}

LanguageModel published_model(const fs::path& folder, const std::shared_ptr<Device>& device) {
  const TextModel model = text_model("hf:" + folder.string());
  if (model.shape.family == TransformerFamily::bert)
    throw UsageError(
        fmt::format("{}: expected a model that predicts the next token, got a BERT", folder.string()));
  Generator unused(0);
  auto network = std::make_unique<Transformer>(model.shape, unused, device);
  load_published(*network, PublishedWeights::open(folder), *published_format(model), model.name);
  LanguageModel made{std::move(network), "", ends_of(model.config)};
  if (fs::exists(folder / "tokenizer.json") || fs::exists(folder / "merges.txt"))
    made.tokenizer = folder.string();
  return made;
}

LanguageModel trained_model(const fs::path& path, const std::string& checkpoint,
                            const std::shared_ptr<Device>& device, Log& log) {
  const SavedRun run = open_run({"dtrain", task_options(), task_of}, path, log);
  const SavedWeights weights = weights_of(run, checkpoint, log);
  LanguageModel made{load_network(run, weights, device), tokenizer_in(run.options.text("dataset")), {}};
  if (dynamic_cast<Transformer*>(made.network.get()) == nullptr)
    throw UsageError(
        fmt::format("{}: expected a run of a language model, got {}", path.string(), run.task->name()));
  if (const auto format = run.task->published_format(run.fields); format && !format->folder.empty()) {
    made.ends = ends_of(format->config);
    if (made.tokenizer.empty() && fs::exists(format->folder / "tokenizer.json"))
      made.tokenizer = format->folder.string();
  }
  return made;
}

}  // namespace

LanguageModel open_language_model(const fs::path& path, const std::string& checkpoint,
                                  const std::shared_ptr<Device>& device, Log& log) {
  return PublishedWeights::is_folder(path) ? published_model(path, device)
                                           : trained_model(path, checkpoint, device, log);
}

std::string tokenizer_in(const std::string& dataset) {
  constexpr std::string_view kKey = ",tokenizer=";
  const auto at = dataset.find(kKey);
  if (at == std::string::npos) return "";
  const auto begin = at + kKey.size();
  return dataset.substr(begin, dataset.find(',', begin) - begin);
}

Words::Words(const std::string& path, std::int64_t vocabulary) {
  if (!path.empty()) tokenizer_ = open_tokenizer(path);
  const std::int64_t own = tokenizer_ ? tokenizer_->vocabulary() : 256;
  if (own > vocabulary || (!tokenizer_ && vocabulary > 256)) {
    throw UsageError(fmt::format("--tokenizer: expected one of at most {} tokens, as the model has, got {}",
                                 vocabulary, tokenizer_ ? fmt::format("{} with {}", path, own) : "none"));
  }
}

Tokens Words::encode(const std::string& text) const {
  Tokens tokens;
  if (tokenizer_) {
    Encoder(tokenizer_).encode(text, tokens, SpecialTokens::parsed);
  } else {
    for (const char byte : text) tokens.push_back(static_cast<unsigned char>(byte));
  }
  return tokens;
}

std::string Words::decode(std::span<const std::int32_t> tokens) const {
  std::string text;
  for (const std::int32_t token : tokens) {
    if (!tokenizer_) text += static_cast<char>(token);
    if (tokenizer_ && token < tokenizer_->vocabulary()) text += tokenizer_->decode({&token, 1});
  }
  return text;
}

}  // namespace dtrain
