// Pooling of f32 channels-last arrays row by row with the vector loops.
#pragma once

#include "runtime/device/cpu/loops/vector_loops.h"
#include "runtime/device/kernels.h"

namespace dtrain::cpu {

/// Whether pool_rows and pool_rows_backward can do it; `mask` may have null data.
bool can_pool_rows(const View& input, const View& output, const View& mask) noexcept;

void pool_rows(PoolMode mode, const Pool2dGeometry& geometry, const View& input, const View& output,
               const View& mask);

/// Writes all of grad_input.
void pool_rows_backward(PoolMode mode, const Pool2dGeometry& geometry, const View& grad_output,
                        const View& mask, const View& grad_input);

}  // namespace dtrain::cpu
