// The vector loops for AVX-512 (F, BW, DQ, VL).
#include "runtime/device/cpu/vector_loops.h"

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl"))), \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")
#endif

namespace dtrain::cpu::avx512 {

#include "runtime/device/cpu/norm_loops_impl.h"
#include "runtime/device/cpu/vector_loops_impl.h"

const VectorLoops kLoops{
    "avx512", pool, pool_backward, {norm::moments, norm::apply, norm::grad_sums, norm::grad_input}};

}  // namespace dtrain::cpu::avx512

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
