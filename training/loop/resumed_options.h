// What a start of a run does otherwise than the one before: options that decide the steps to come, and may
// change from start to start.
#pragma once

#include <map>
#include <string>

#include "runtime/base/options.h"
#include "runtime/optim/lr_schedule.h"

namespace dtrain {

/// Their values, for a checkpoint (TrainingState::extra).
std::map<std::string, std::string> noted_options(const Options& options);

/// "--epochs 20 (10 before), …": those of `now` that differ from what noted_options() put into `saved`;
/// empty: none.
std::string changed_options(const Options& now, const std::map<std::string, std::string>& saved);

/// `lr`, of the step after the checkpoint, for lr_jump().
std::pair<std::string, std::string> noted_lr(double lr);

/// What to say of a learning rate that is not what noted_lr() put into `saved`, and how to choose: `schedule`
/// continues at `position`, and its base is what --lr says where `is_plain`. Empty: it is the same.
std::string lr_jump(const LrSchedule& schedule, double position, bool is_plain,
                    const std::map<std::string, std::string>& saved);

}  // namespace dtrain
