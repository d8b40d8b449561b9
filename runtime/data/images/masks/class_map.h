// The class of each pixel of a picture (decode_class_map()), seen through the same crop as the picture.
#pragma once

#include <cstdint>

#include "runtime/data/images/decode.h"
#include "runtime/data/images/transform.h"

namespace dtrain {

/// What the values of a class map mean.
struct ClassNumbers {
  std::int64_t classes = 0;    ///< 0 to classes - 1
  std::int64_t ignored = 255;  ///< the number of pixels without a class, which becomes -1; wins over a class
};

/// Throws DataError naming `picture` and the first pixel that is neither a class nor ignored.
void check_class_map(const ClassMap& map, const ClassNumbers& numbers, const EncodedPicture& picture);

/// Writes the classes of the part `seen` of the map to `mask`, i64 [size, size] of any strides: of each pixel
/// that of the nearest one, as Pillow's Resampling.NEAREST has it. The values are classes or ignored,
/// unchecked.
void write_classes(const ClassMap& map, const ClassNumbers& numbers, const SeenRegion& seen, bool mirrored,
                   const View& mask);

}  // namespace dtrain
