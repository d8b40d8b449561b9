// Whether a program would take the options of a sweep's runs, asked before the first one starts.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/environment.h"
#include "worker/sweep/config.h"
#include "worker/sweep/plan.h"

namespace dtrain::sweep {

/// Throws UsageError for options that the program does not take; `arguments` as arguments_of() gives them.
using Check = std::function<void(const std::vector<std::string>& arguments, const Environment& environment)>;

/// Asks a program made with train_main(): it is started with --print-config, which trains nothing.
Check check_by_asking(std::string program);

/// Refuses options that the sweep sets itself, those that are not among `known` (empty: not told), and
/// whatever `check` refuses of a run. Throws UsageError naming the file, and the option or the run.
void check_runs(const SweepConfig& config, const std::vector<Run>& runs,
                const std::vector<std::string_view>& known, const Check& check,
                const Environment& environment);

}  // namespace dtrain::sweep
