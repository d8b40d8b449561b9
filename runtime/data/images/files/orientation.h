// EXIF's orientation: how cameras say that the pixels they stored are to be turned.
#pragma once

#include <memory>

#include "runtime/data/images/decode.h"

namespace dtrain {

/// 1 to 8, as the EXIF block of a JPEG says (tag 0x0112); 1, as it is, where there is none, or none that can
/// be read, and for other formats.
int exif_orientation(std::span<const std::uint8_t> bytes) noexcept;

/// The picture as it is meant to be seen, as Pillow's ImageOps.exif_transpose gives it: mirrored and turned
/// by `orientation`, 1 to 8. Only what is needed of a part is decoded.
std::unique_ptr<PictureDecoder> turned_upright(std::unique_ptr<PictureDecoder> picture, int orientation);

}  // namespace dtrain
