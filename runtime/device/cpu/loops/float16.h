// Conversions between float32 and float16 by the processor's instructions, where it has them.
#pragma once

#include <cstdint>

#include "runtime/base/dtype.h"

namespace dtrain::cpu {

/// to[i] = Float16(from[i]), i from 0 to count - 1, bit for bit. The arrays do not overlap.
void convert(std::int64_t count, const float* from, Float16* to) noexcept;

/// to[i] = float(from[i]), i from 0 to count - 1, bit for bit. The arrays do not overlap.
void convert(std::int64_t count, const Float16* from, float* to) noexcept;

}  // namespace dtrain::cpu
