// The vector loops for AVX-512 (F, BW, DQ, VL).
#include "runtime/device/cpu/loops/vector_loops.h"

#if defined(__x86_64__)
#include "runtime/device/cpu/target.h"

DTRAIN_TARGET_BEGIN(DTRAIN_AVX512)

namespace dtrain::cpu::avx512 {

#include "runtime/device/cpu/loops/norm_loops_impl.h"
#include "runtime/device/cpu/loops/vector_loops_impl.h"

const VectorLoops kLoops{
    "avx512", pool, pool_backward, {norm::moments, norm::apply, norm::grad_sums, norm::grad_input}};

}  // namespace dtrain::cpu::avx512

DTRAIN_TARGET_END

#endif
