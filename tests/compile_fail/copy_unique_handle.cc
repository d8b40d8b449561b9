// A handle has one owner: copying one would close it twice.
// refused: use of deleted function|call to deleted constructor
#include "runtime/base/fd.h"

#include <utility>

int main() {
  dtrain::UniqueFd owner(0);
#ifdef MUST_NOT_COMPILE
  dtrain::UniqueFd second = owner;
#else
  dtrain::UniqueFd second = std::move(owner);
#endif
  return second.release();
}
