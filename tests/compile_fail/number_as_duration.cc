// Time has a unit: a bare number is neither seconds nor milliseconds.
// refused: could not convert|no viable conversion|no matching function|cannot convert
#include <chrono>

#include "runtime/base/clock.h"

int main() {
#ifdef MUST_NOT_COMPILE
  dtrain::Deadline deadline = dtrain::Deadline::after(5);
#else
  dtrain::Deadline deadline = dtrain::Deadline::after(std::chrono::seconds(5));
#endif
  return deadline.expired() ? 1 : 0;
}
