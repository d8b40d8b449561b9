// The tasks that `dtrain train` knows by name.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "training/task.h"

namespace dtrain {

/// Names that make_task knows: "classification", "regression".
std::span<const std::string_view> task_names();

/// Learns `task` with the built-in network `model` (network_names()). Throws UsageError for unknown names,
/// listing those there are.
std::unique_ptr<Task> make_task(std::string_view task, std::string_view model);

}  // namespace dtrain
