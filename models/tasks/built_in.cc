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
constexpr std::string_view kTransformer = "transformer";

}  // namespace

std::span<const std::string_view> task_names() { return kNames; }

std::string_view default_task(std::string_view model) {
  return model == kTransformer ? "language" : "classification";
}

std::unique_ptr<Task> make_task(std::string_view task, std::string_view model,
                                const TransformerShape& shape) {
  if ((model == kTransformer) != (task == "language")) {
    throw UsageError(fmt::format(
        "task: expected language for transformer and for nothing else, got '{}' for {}", task, model));
  }
  if (model == kTransformer) return std::make_unique<Language>(shape);
  if (std::ranges::find(network_names(), model) == network_names().end()) {
    throw UsageError(fmt::format("model: expected one of {}, {}, got '{}'", fmt::join(network_names(), ", "),
                                 kTransformer, model));
  }
  if (task == "classification") return std::make_unique<Classification>(model);
  if (task == "regression") return std::make_unique<Regression>(model);
  throw UsageError(fmt::format("task: expected one of {}, got '{}'", fmt::join(kNames, ", "), task));
}

}  // namespace dtrain
