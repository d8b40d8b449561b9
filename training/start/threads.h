// How many threads a worker computes with. A launcher says it with OMP_NUM_THREADS; a worker that srun or
// mpirun started has to work it out, or every one of them would use all cores.
#pragma once

#include "cluster/detect/detect.h"

namespace dtrain {

/// The share of a worker placed as `placement` in `cores` cores that it may run on: at least 1. Slurm's
/// --cpus-per-task wins; else what is there is divided by the workers of the node.
int worker_threads(const Placement& placement, const Environment& environment, int cores);

/// Makes the math libraries use that many threads from the calling thread, unless OMP_NUM_THREADS says how
/// many; `wanted`, where it is not 0, wins over both. A worker with several `devices` computes on all of them
/// at the same time, and each gets its part. Call before the first computation.
void limit_threads(const Placement& placement, const Environment& environment, int wanted = 0,
                   int devices = 1);

}  // namespace dtrain
