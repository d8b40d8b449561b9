// Pictures made smaller or larger with the numbers of Pillow 13's Image.resize, to the last bit.
#pragma once

#include "runtime/data/images/picture.h"

namespace dtrain {

enum class Filter { bilinear, bicubic };

/// What resize() keeps between pictures; used by one thread.
struct ResizeMemory {
  /// Of each output place of a pass: where its inputs begin, and a weight for each of them.
  struct Weights {
    int taps = 0;  ///< weights kept of a place; those not needed are 0
    std::vector<int> begins, counts;
    std::vector<std::int32_t> values;  ///< [places, taps], in units of 2^-22
  };
  Weights weights;
  Picture across, down;
};

/// A picture of one size (at least one pixel) made another's, of which only a part is wanted.
struct Resizing {
  PictureSize from, to;
  Region part;  ///< of the result, inside, unchecked
  Filter filter = Filter::bilinear;
};

/// The pixels that the wanted part is made of: nothing else has to be decoded.
Region pixels_needed(const Resizing& how);

/// The wanted part, from a view of exactly the needed pixels. First across, then down (or, of a picture that
/// loses more rows than twice its columns, down first), each pass stored as 8 bits; a direction of equal size
/// is left alone. Inputs are weighed over a filter that widens when the picture shrinks (antialiasing). The
/// pixels are `memory`'s until its next use, or `needed`'s where nothing is to be done.
PictureView resize(const PictureView& needed, const Resizing& how, ResizeMemory& memory);
/// All of `from` as a picture of `size`.
PictureView resize(const PictureView& from, PictureSize size, Filter filter, ResizeMemory& memory);

}  // namespace dtrain
