// One loop compiled for each vector length, where it is a template and so cannot stand in a table as those of
// vector_loops.h do.
#pragma once

#include "runtime/device/cpu/features.h"
#include "runtime/device/cpu/target.h"

namespace dtrain::cpu {

/// On a lambda, and on every function that holds a part of its loop: what is not inlined keeps to the vectors
/// that every processor has.
#define DTRAIN_ALWAYS_INLINE __attribute__((always_inline))

#if defined(__x86_64__)
template <class Loop>
__attribute__((target(DTRAIN_AVX2))) auto run_avx2(const Loop& loop) {
  return loop();
}
template <class Loop>
__attribute__((target(DTRAIN_AVX512))) auto run_avx512(const Loop& loop) {
  return loop();
}
#endif

/// loop(), with the widest vectors that this processor has. The same bits with all of them only where its
/// file is compiled with -ffp-contract=off.
template <class Loop>
auto widest(const Loop& loop) {
#if defined(__x86_64__)
  if (has_avx512()) return run_avx512(loop);
  if (has_avx2()) return run_avx2(loop);
#endif
  return loop();
}

}  // namespace dtrain::cpu
