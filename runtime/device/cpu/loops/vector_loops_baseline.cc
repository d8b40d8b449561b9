// What every processor of the target can do; also chooses between the tables.
#include "runtime/device/cpu/features.h"
#include "runtime/device/cpu/loops/vector_loops.h"

namespace dtrain::cpu {
namespace baseline {

#include "runtime/device/cpu/loops/norm_loops_impl.h"
#include "runtime/device/cpu/loops/vector_loops_impl.h"

const VectorLoops kLoops{
    "baseline", pool, pool_backward, {norm::moments, norm::apply, norm::grad_sums, norm::grad_input}};

}  // namespace baseline

const VectorLoops& vector_loops() noexcept {
#if defined(__x86_64__)
  if (has_avx512()) return avx512::kLoops;
  if (has_avx2()) return avx2::kLoops;
#endif
  return baseline::kLoops;
}

}  // namespace dtrain::cpu
