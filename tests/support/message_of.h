// The text of what a call throws.
#pragma once

#include <string>

#include "runtime/base/error.h"

namespace dtrain::test {

/// Of an Error; "no error" when none came.
template <class Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace dtrain::test
