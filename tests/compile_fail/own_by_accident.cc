// A borrowed descriptor must not become an owned one by passing it on: the constructor is explicit.
// refused: could not convert|no viable conversion|no matching function
#include "runtime/base/fd.h"

namespace {
int consume(dtrain::UniqueFd fd) { return fd.get(); }
}  // namespace

int main() {
  const int borrowed = 0;
#ifdef MUST_NOT_COMPILE
  return consume(borrowed);
#else
  return consume(dtrain::UniqueFd(borrowed));
#endif
}
