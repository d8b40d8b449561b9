// The one checker: `check(result, what)` throws when a call failed and returns the useful value when it did
// not. This header has the overload for system calls; device and collective backends add theirs for their own
// result types.
#pragma once

#include <cerrno>
#include <string>
#include <string_view>

#include "runtime/base/error.h"

namespace dtrain {

/// Result of a system call that returns -1 and sets errno on failure. Build it in the same expression as the
/// call.
struct Sys {
  explicit Sys(long call_result) : result(call_result), error_number(call_result == -1 ? errno : 0) {}
  long result;
  int error_number;
};

/// Returns the call's result; throws SystemError("what: strerror") when it was -1.
inline long check(Sys call, std::string_view what) {
  if (call.result == -1) throw SystemError(std::string(what), call.error_number);
  return call.result;
}

}  // namespace dtrain
