// `dtrain-launch status`, `stop`, `save` and `stacks`: the words, and asking the launchers that run.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/environment.h"
#include "runtime/base/options.h"

namespace dtrain::launcher {

/// One of them, as help, completion and manual pages have it.
struct ControlCommand {
  std::string_view name, help;
  std::span<const OptionSpec> options;
};

std::span<const ControlCommand> control_commands() noexcept;

/// What `arguments` print where they begin with one of these words; nothing where they do not, and so are
/// the start of a job. Throws UsageError where no job, or not one alone, is meant, with the list of those
/// that run; PeerError where the launcher does not answer.
std::optional<std::string> control_command(const std::vector<std::string>& arguments,
                                           const Environment& environment);

}  // namespace dtrain::launcher
