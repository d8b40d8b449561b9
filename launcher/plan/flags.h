// What the rows of flags.def are to people and to the parser.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "runtime/base/options.h"

namespace dtrain::launcher {

/// Every option, in the order of the help. Options that detection can answer have no default here.
std::span<const OptionSpec> launch_options() noexcept;

/// What --print-completion asks for: a script that completes option names in that shell. Throws UsageError.
std::string completion_script(const Options& options);

/// What --help and --help-all ask for, readable at 80 columns, or with --help=markdown as the documentation's
/// table; nothing when neither is given.
std::optional<std::string> asked_help(const Options& options);

}  // namespace dtrain::launcher
