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
  LanguageModel made{load_network(run, weights, device),
                     tokenizer_in(run.options.text("dataset"),
                                  run.options.has("data-dir") ? run.options.text("data-dir") : ""),
                     {}};
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

}  // namespace dtrain
