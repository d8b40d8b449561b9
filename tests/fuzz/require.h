// What a fuzz target does when a promise is broken: say which, and abort for the fuzzer to see.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace dtrain::fuzz {

inline void require(bool holds, const char* promise) {
  if (holds) return;
  std::fprintf(stderr, "broken promise: %s\n", promise);
  std::abort();
}

}  // namespace dtrain::fuzz
