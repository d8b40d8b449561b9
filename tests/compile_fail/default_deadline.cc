// Every blocking call takes a deadline that somebody chose: there is no default one.
// refused: is private within this context|calling a private constructor
#include "runtime/base/clock.h"

int main() {
#ifdef MUST_NOT_COMPILE
  dtrain::Deadline deadline;
#else
  dtrain::Deadline deadline = dtrain::Deadline::never();
#endif
  return deadline.expired() ? 1 : 0;
}
