// The table of every option dtrain-launch knows: one row each, from which parsing, help, environment names,
// config keys and suggestions are all made.
#pragma once

#include <span>

#include "runtime/base/options.h"

namespace dtrain::launcher {

/// Every option, in the order of the help. Options that detection can answer have no default here.
std::span<const OptionSpec> launch_options() noexcept;

/// The whole help text, readable at 80 columns.
std::string help_text();

}  // namespace dtrain::launcher
