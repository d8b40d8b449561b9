// The two passes of resize(), by AVX2 where there is one: three colours side by side, and sums of 32 bits of
// bytes, are nothing the compiler finds good vectors for.
#pragma once

#include "runtime/data/images/resize.h"

namespace dtrain {

/// Bits of a weight behind the point: 8 bits of a pixel, and 2 for sums that overshoot, are left of 32.
inline constexpr int kWeightBits = 22;

/// Each row of `from` as one of `to`, which has as many rows.
void resize_across(const PictureView& from, const ResizeMemory::Weights& weights, Picture& to);
/// Each column of `from` as one of `to`, which has as many columns.
void resize_down(const PictureView& from, const ResizeMemory::Weights& weights, Picture& to);

}  // namespace dtrain
