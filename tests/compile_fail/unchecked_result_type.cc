// A checked call says which kind of result it has; a bare number could be anybody's error code.
// refused: could not convert|no viable conversion|no matching function
#include <unistd.h>

#include "runtime/base/check.h"

int main() {
#ifdef MUST_NOT_COMPILE
  return static_cast<int>(dtrain::check(::getppid(), "getppid"));
#else
  return static_cast<int>(dtrain::check(dtrain::Sys{::getppid()}, "getppid"));
#endif
}
