// Short cuts for tests that start from a command line.
#pragma once

#include "launcher/plan/flags.h"
#include "launcher/plan/foreign_options.h"
#include "launcher/plan/options.h"
#include "runtime/base/error.h"

namespace dtrain::launcher {

inline ParsedCommand parse(const std::vector<std::string>& arguments, const Environment& environment = {}) {
  return resolve_command("dtrain-launch", launch_options(), arguments, environment, "PET_",
                         foreign_options());
}

inline LaunchOptions options_of(const std::vector<std::string>& arguments,
                                const Environment& environment = {}) {
  return make_options(parse(arguments, environment));
}

/// The message of the UsageError that `call` throws; "" when it throws none.
template <class Call>
std::string complaint(Call&& call) {
  try {
    call();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

}  // namespace dtrain::launcher
