// The vector loops for AVX2 and FMA.
#include "runtime/device/cpu/vector_loops.h"

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif

namespace dtrain::cpu::avx2 {

#include "runtime/device/cpu/norm_loops_impl.h"
#include "runtime/device/cpu/vector_loops_impl.h"

const VectorLoops kLoops{
    "avx2", pool, pool_backward, {norm::moments, norm::apply, norm::grad_sums, norm::grad_input}};

}  // namespace dtrain::cpu::avx2

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
