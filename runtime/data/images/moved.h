// Pictures sheared, shifted and turned: what apply() does for those kinds.
#pragma once

#include <array>

#include "runtime/data/images/picture_ops.h"

namespace dtrain {

/// Where a pixel comes from: column a·x + b·y + c, row d·x + e·y + f, with pixels at half numbers.
struct AffineMap {
  double a = 1, b = 0, c = 0, d = 0, e = 1, f = 0;
};

/// The map of shear_x, shear_y, translate_x, translate_y or rotate.
AffineMap affine_map(const PictureOp& op, PictureSize size);
/// `from` at the places of `map`, bilinearly; black outside. `to` gets the same size.
void move_pixels(const PictureView& from, const AffineMap& map, Picture& to);
/// As kind rotate: quarters of a turn move whole pixels where they fit.
void rotate(const PictureView& from, double degrees, Picture& to);

}  // namespace dtrain
