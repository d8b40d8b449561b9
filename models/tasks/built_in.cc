#include "models/tasks/built_in.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "models/tasks/language.h"
#include "models/tasks/masked_language.h"
#include "models/tasks/regression.h"
#include "models/tasks/segmentation.h"
#include "models/tasks/text_classification.h"
#include "models/vision/network.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

constexpr std::array<std::string_view, 5> kNames = {"classification", "regression", "segmentation",
                                                    "language", "masked-language"};

std::unique_ptr<Task> make_text_task(std::string_view task, TextModel model) {
  const bool is_bert = model.shape.family == TransformerFamily::bert;
  if (task == "language" && !is_bert) return std::make_unique<Language>(std::move(model));
  if (task == "masked-language" && is_bert) return std::make_unique<MaskedLanguage>(std::move(model));
  if (task == "classification" && is_bert) return std::make_unique<TextClassification>(std::move(model));
  throw UsageError(fmt::format("task: expected {} for {}, got '{}'",
                               is_bert ? "masked-language or classification" : "language", model.name, task));
}

}  // namespace

std::string_view default_task(std::string_view model) {
  if (labels_pixels(model)) return "segmentation";
  if (!is_text_model(model)) return "classification";
  const TextModel text = text_model(model);
  if (text.shape.family != TransformerFamily::bert) return "language";
  return text.heads.classes > 0 ? "classification" : "masked-language";
}

std::unique_ptr<Task> make_task(std::string_view task, std::string_view model,
                                const std::function<void(TextModel&)>& adjust, const SoftTargets& targets,
                                bool zero_last_norms) {
  if (is_text_model(model)) {
    TextModel text = text_model(model);
    if (adjust) adjust(text);
    return make_text_task(task, std::move(text));
  }
  if (std::ranges::find(network_names(), model) == network_names().end()) {
    throw UsageError(fmt::format("model: expected one of {}, {}, hf:DIR or llama:FILE, got '{}'",
                                 fmt::join(network_names(), ", "), fmt::join(text_model_names(), ", "),
                                 model));
  }
  if (labels_pixels(model) != (task == "segmentation") && std::ranges::find(kNames, task) != kNames.end()) {
    throw UsageError(fmt::format("task: expected {} for {}, got '{}'",
                                 labels_pixels(model) ? "segmentation" : "classification or regression",
                                 model, task));
  }
  if (task == "segmentation") return std::make_unique<Segmentation>(model);
  if (task == "classification") return std::make_unique<Classification>(model, targets, zero_last_norms);
  if (task == "regression") return std::make_unique<Regression>(model);
  if (std::ranges::find(kNames, task) != kNames.end())
    throw UsageError(
        fmt::format("task: expected classification or regression for {}, got '{}'", model, task));
  throw UsageError(fmt::format("task: expected one of {}, got '{}'", fmt::join(kNames, ", "), task));
}

}  // namespace dtrain
