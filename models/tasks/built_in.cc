#include "models/tasks/built_in.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "models/tasks/classification.h"
#include "models/tasks/language.h"
#include "models/tasks/regression.h"
#include "models/vision/network.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

constexpr std::array<std::string_view, 3> kNames = {"classification", "regression", "language"};
}  // namespace

std::span<const std::string_view> task_names() { return kNames; }

std::string_view default_task(std::string_view model) {
  return is_text_model(model) ? "language" : "classification";
}

std::unique_ptr<Task> make_task(std::string_view task, std::string_view model,
                                const std::function<void(TransformerShape&)>& adjust) {
  const bool text = is_text_model(model);
  if (text != (task == "language")) {
    throw UsageError(
        fmt::format("task: expected language for transformer and other language models, and for nothing "
                    "else, got '{}' for {}",
                    task, model));
  }
  if (text) {
    TextModel language = text_model(model);
    if (adjust) adjust(language.shape);
    return std::make_unique<Language>(std::move(language));
  }
  if (std::ranges::find(network_names(), model) == network_names().end()) {
    throw UsageError(fmt::format("model: expected one of {}, {}, hf:DIR or llama:FILE, got '{}'",
                                 fmt::join(network_names(), ", "), fmt::join(text_model_names(), ", "),
                                 model));
  }
  if (task == "classification") return std::make_unique<Classification>(model);
  if (task == "regression") return std::make_unique<Regression>(model);
  throw UsageError(fmt::format("task: expected one of {}, got '{}'", fmt::join(kNames, ", "), task));
}

}  // namespace dtrain
