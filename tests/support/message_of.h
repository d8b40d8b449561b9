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

/// Of an error of the type `Expected`; of another one it says that it is.
template <class Expected, class Call>
std::string text_of(Call&& call) {
  try {
    call();
  } catch (const Expected& error) {
    return error.what();
  } catch (const Error& error) {
    return std::string("an error of another type: ") + error.what();
  }
  return "no error";
}

}  // namespace dtrain::test
