// release() hands the duty to close to the caller: ignoring its result leaks the handle.
// refused: ignoring return value
#include "runtime/base/fd.h"

int main() {
  dtrain::UniqueFd owner(0);
#ifdef MUST_NOT_COMPILE
  owner.release();
  return 0;
#else
  return owner.release();
#endif
}
