// A handle has one owner, in assignment as in construction.
// refused: use of deleted function|overload resolution selected deleted operator
#include "runtime/base/fd.h"

#include <utility>

int main() {
  dtrain::UniqueFd owner(0);
  dtrain::UniqueFd second;
#ifdef MUST_NOT_COMPILE
  second = owner;
#else
  second = std::move(owner);
#endif
  return second.release();
}
