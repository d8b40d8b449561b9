// The tasks that `dtrain train` knows by name.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "models/tasks/classification.h"
#include "models/text/text_model.h"
#include "training/task.h"

namespace dtrain {

/// What `model` learns unless it is told: "language" for a model that predicts the next token,
/// "masked-language" for a BERT with a head for words, "segmentation" for one that labels pixels, else
/// "classification". Throws as text_model().
std::string_view default_task(std::string_view model);

/// Learns `task` with the built-in network `model` (network_names(), text_model()). Throws UsageError for
/// unknown names, listing those there are, and as text_model(). `adjust`, if there is one, changes a language
/// model's shape before it is built; `targets` and `zero_last_norms` (Classification) are of a classification
/// that is none of texts, else ignored.
std::unique_ptr<Task> make_task(std::string_view task, std::string_view model,
                                const std::function<void(TextModel&)>& adjust = {},
                                const SoftTargets& targets = {}, bool zero_last_norms = false);

}  // namespace dtrain
