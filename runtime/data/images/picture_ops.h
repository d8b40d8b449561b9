// Single changes of a picture's colours and shape, as Pillow makes them, to the last bit: what random
// augmentation is made of.
#pragma once

#include <string_view>

#include "runtime/data/images/picture.h"

namespace dtrain {

/// What is done to a picture, and the meaning of PictureOp::amount.
enum class PictureOpKind {
  identity,
  shear_x,        ///< columns move by `amount` rows' distance from the top
  shear_y,        ///< rows move by `amount` columns' distance from the left
  translate_x,    ///< pixels to the right, a whole number
  translate_y,    ///< pixels down, a whole number
  rotate,         ///< degrees, counter-clockwise, about the middle
  brightness,     ///< 0: black, 1: as it is, more: brighter
  color,          ///< 0: gray, 1: as it is, more: more saturated
  contrast,       ///< 0: its mean gray, 1: as it is
  sharpness,      ///< 0: smoothed, 1: as it is
  posterize,      ///< bits kept of each channel, 1 to 8
  solarize,       ///< values of at least this are inverted
  auto_contrast,  ///< each channel from 0 to 255
  equalize,       ///< each channel's histogram as even as can be
  hue,            ///< turns of the colour circle, -0.5 to 0.5
};

struct PictureOp {
  PictureOpKind kind = PictureOpKind::identity;
  double amount = 0;
  bool operator==(const PictureOp&) const = default;
};

/// "identity", "shear_x", …: as they are spelled here. Throws UsageError, listing them, for another.
PictureOpKind picture_op_kind_named(std::string_view name);

/// Changes `picture`, whose size stays. What moves is interpolated bilinearly, and black where nothing came
/// from. `spare` is memory to work with; its pixels are then any. Linear in the pixels.
void apply(const PictureOp& op, Picture& picture, Picture& spare);

}  // namespace dtrain
