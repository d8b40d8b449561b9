// What people who know other training programs type: no option of ours, but what they mean has one.
#pragma once

#include <span>

#include "runtime/base/options.h"

namespace dtrain {

std::span<const ForeignOption> foreign_train_options() noexcept;

}  // namespace dtrain
