// Matrix products of int64.
#pragma once

#include "runtime/device/cuda/context.h"

namespace dtrain::cuda {

/// As Kernels::matmul for i64 arrays of checked, non-empty shapes, without bias and activation.
void integer_matmul(const Context& context, const View& a, const View& b, bool accumulate, const View& out);

}  // namespace dtrain::cuda
