// What a command of a batch system prints, under a deadline.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/base/clock.h"

namespace dtrain {

/// Runs `argv` (the program from PATH) without input and gives what it writes to standard output; its
/// standard error goes nowhere. Nothing when there is no such program, it fails, prints more than 64 KiB, or
/// has not closed its output when `deadline` passes; it is killed then. Throws SystemError when the system is
/// out of descriptors.
std::optional<std::string> output_of(const std::vector<std::string>& argv, const Deadline& deadline);

}  // namespace dtrain
