// What --health-check starts on all nodes in place of the program.
#pragma once

#include "launcher/plan/options.h"
#include "launcher/plan/program.h"

namespace dtrain::launcher {

/// `dtrain doctor` of this installation, which fails on nodes that are bad or out of line with the others.
/// Throws SystemError.
Program examination_program(const LaunchOptions& options);

/// `options` for it: its output goes to the console alone, and there are no parameter servers.
LaunchOptions examination_options(LaunchOptions options);

}  // namespace dtrain::launcher
