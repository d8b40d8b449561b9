// Images of one byte a pixel as numbers: what the image sources share.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/data/source.h"

namespace dtrain {

/// The fields of a labelled image: image float32 [C, H, W] (`shape`) in [0, 1], label int64 [] below
/// `classes`.
std::vector<Field> labelled_image(const Dims& shape, std::int64_t classes);

/// Writes `pixels`, plane by plane, into `out` ([C, H, W], any strides): f32 as value / 255 in float32,
/// correctly rounded, bit for bit what PyTorch's `x.float().div_(255)` gives; u8 as they are
/// (Source::has_bytes).
void write_pixels(const std::uint8_t* pixels, const View& out);

}  // namespace dtrain
