// What people who know mpirun, mpiexec and srun type: no option of ours, but what they mean has one.
#pragma once

#include <span>

#include "runtime/base/options.h"

namespace dtrain::launcher {

std::span<const ForeignOption> foreign_options() noexcept;

}  // namespace dtrain::launcher
