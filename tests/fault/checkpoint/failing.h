// Runs a program with failing_calls.cc preloaded.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/support/process.h"

namespace dtrain::test {

/// Sets the environment in which calls fail as `rules` say, each leaving a line in `log`; nothing without
/// rules.
inline void preload_failing_calls(RunOptions& options, const std::string& rules,
                                  const std::filesystem::path& log) {
  if (rules.empty()) return;
  // AddressSanitizer wants to be the first library of all; it works as the second one too.
  const char* sanitizer = std::getenv("ASAN_OPTIONS");
  options.environment = {
      {"LD_PRELOAD", std::getenv("DTRAIN_FAILING_CALLS")},
      {"DTRAIN_FAIL", rules},
      {"DTRAIN_FAIL_LOG", log.string()},
      {"ASAN_OPTIONS", std::string(sanitizer == nullptr ? "" : sanitizer) + ":verify_asan_link_order=0"}};
}

}  // namespace dtrain::test
