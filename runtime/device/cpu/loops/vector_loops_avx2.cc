// The vector loops for AVX2 and FMA.
#include "runtime/device/cpu/loops/vector_loops.h"

#if defined(__x86_64__)
#include "runtime/device/cpu/target.h"

DTRAIN_TARGET_BEGIN(DTRAIN_AVX2)

namespace dtrain::cpu::avx2 {

#include "runtime/device/cpu/loops/norm_loops_impl.h"
#include "runtime/device/cpu/loops/vector_loops_impl.h"

const VectorLoops kLoops{
    "avx2", pool, pool_backward, {norm::moments, norm::apply, norm::grad_sums, norm::grad_input}};

}  // namespace dtrain::cpu::avx2

DTRAIN_TARGET_END

#endif
