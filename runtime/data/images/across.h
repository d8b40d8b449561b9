// The pass of resize() along the rows, where the three colours of a pixel lie side by side and the compiler
// finds no vectors.
#pragma once

#include "runtime/data/images/resize.h"

namespace dtrain {

/// Bits of a weight behind the point: 8 bits of a pixel, and 2 for sums that overshoot, are left of 32.
inline constexpr int kWeightBits = 22;

/// Each row of `from` as one of `to`, which has as many rows.
void resize_across(const PictureView& from, const ResizeMemory::Weights& weights, Picture& to);

}  // namespace dtrain
