// Images, sequences and volumes of other extents, as torch.nn.functional.interpolate has them.
#pragma once

#include <vector>

#include "runtime/tensor/tensor.h"

namespace dtrain {

enum class InterpolateMode {
  nearest,  ///< the element whose place, rounded down, it is
  linear,   ///< between the two neighbours of each dimension: torch's linear, bilinear and trilinear
  bicubic,  ///< of images, through four neighbours of each dimension: Keys 1981 with a = -0.75, as torch
};

struct InterpolateOptions {
  /// Extents of the result behind [N, C]; either these or `scale` is given.
  Dims size = {};
  /// Factors of the extents, one for all dimensions or one for each. The result's are rounded down.
  std::vector<double> scale = {};
  InterpolateMode mode = InterpolateMode::nearest;
  /// Of linear and bicubic: the first and the last elements keep their places, and what is between is
  /// stretched. Without it, elements are areas, and the outer edges of the first and last keep theirs.
  bool align_corners = false;
};

/// x [N, C, L], [N, C, H, W] or [N, C, D, H, W] → the same with other extents. Bicubic can leave the range
/// of x's values. Throws UsageError for other ranks, for bicubic of another than 4, for extents below 1, and
/// unless exactly one of size and scale is given.
///
///     interpolate(x, {.scale = {2}, .mode = InterpolateMode::linear});  // twice as high and wide
Tensor interpolate(const Tensor& x, const InterpolateOptions& options);

}  // namespace dtrain
