// The tasks that `dtrain train` knows by name.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "models/text/transformer.h"
#include "training/task.h"

namespace dtrain {

/// Names that make_task knows: "classification", "regression", "language".
std::span<const std::string_view> task_names();
/// What `model` learns unless it is told: "language" for transformer, else "classification".
std::string_view default_task(std::string_view model);

/// Learns `task` with the built-in network `model` (network_names(), transformer). Throws UsageError for
/// unknown names, listing those there are. `shape` is a transformer's, which learns language and nothing
/// else.
std::unique_ptr<Task> make_task(std::string_view task, std::string_view model,
                                const TransformerShape& shape = {});

}  // namespace dtrain
