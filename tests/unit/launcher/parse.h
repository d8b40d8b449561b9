// Short cuts for tests that start from a command line.
#pragma once

#include "launcher/command_line.h"
#include "launcher/options.h"
#include "runtime/base/error.h"

namespace dtrain::launcher {

inline std::string no_file(const std::string& path) { throw SystemError("open " + path, 2); }

inline CommandLine parse(const std::vector<std::string>& arguments, const Environment& environment = {}) {
  return parse_command_line(arguments, environment, no_file);
}

inline Options options_of(const std::vector<std::string>& arguments, const Environment& environment = {}) {
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
