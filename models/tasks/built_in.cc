#include "models/tasks/built_in.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "models/tasks/classification.h"
#include "models/tasks/regression.h"
#include "models/vision/network.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

constexpr std::array<std::string_view, 2> kNames = {"classification", "regression"};

}  // namespace

std::span<const std::string_view> task_names() { return kNames; }

std::unique_ptr<Task> make_task(std::string_view task, std::string_view model) {
  if (std::ranges::find(network_names(), model) == network_names().end()) {
    throw UsageError(
        fmt::format("model: expected one of {}, got '{}'", fmt::join(network_names(), ", "), model));
  }
  if (task == "classification") return std::make_unique<Classification>(model);
  if (task == "regression") return std::make_unique<Regression>(model);
  throw UsageError(fmt::format("task: expected one of {}, got '{}'", fmt::join(kNames, ", "), task));
}

}  // namespace dtrain
