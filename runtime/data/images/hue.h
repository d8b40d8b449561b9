// The colours of a picture turned about the gray axis, by way of hue, saturation and value of 8 bits each.
#pragma once

#include "runtime/data/images/picture.h"

namespace dtrain {

/// `turns` of the colour circle, -0.5 to 0.5.
void turn_hue(Picture& picture, double turns);

}  // namespace dtrain
