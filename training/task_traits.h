// What the table of options that do not go together asks of a task.
#pragma once

#include "training/options/train_config.h"
#include "training/task.h"

namespace dtrain {

/// What of a step is `task`'s own.
inline TaskTraits traits_of(const Task& task) {
  return {.phases = task.phases().size(),
          .has_groups = !task.parameter_groups().empty(),
          .has_optimizer = task.make_optimizer() != nullptr,
          .has_after_update = task.after_update() != nullptr,
          .has_step_loss = task.step_loss() != nullptr,
          .has_group_loss = task.group_loss() != nullptr};
}

}  // namespace dtrain
