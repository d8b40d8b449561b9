// One loop compiled for each vector length, where it is a template and so cannot stand in a table as those of
// vector_loops.h do.
#pragma once

#include "runtime/device/cpu/features.h"
#include "runtime/device/cpu/target.h"

namespace dtrain::cpu {

/// On the loop that comes next: its iterations touch different elements. An output may be an input, element
/// for element, which the compiler would take for an overlap and leave the vectors.
#if defined(__clang__)
#define DTRAIN_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define DTRAIN_INDEPENDENT _Pragma("GCC ivdep")
#endif

#if defined(__x86_64__)
// `flatten`: all that the loop calls becomes a part of it. What is not inlined keeps to the vectors that
// every processor has.
template <class Loop>
__attribute__((target(DTRAIN_AVX2), flatten)) auto run_avx2(const Loop& loop) {
  return loop();
}
template <class Loop>
__attribute__((target(DTRAIN_AVX512), flatten)) auto run_avx512(const Loop& loop) {
  return loop();
}
#endif

/// loop(), with the widest vectors that this processor has. The same bits with all of them, provided that its
/// file is one of DTRAIN_VECTOR_FILES in CMakeLists.txt and that it fixes the order of its sums (sums.h).
template <class Loop>
auto widest(const Loop& loop) {
#if defined(__x86_64__)
  if (has_avx512()) return run_avx512(loop);
  if (has_avx2()) return run_avx2(loop);
#endif
  return loop();
}

}  // namespace dtrain::cpu
