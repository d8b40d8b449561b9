// Pixels as a compressed picture, for people to look at.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/data/images/decode.h"

namespace dtrain {

/// `picture`, at least one pixel, as a baseline JPEG of `quality` 1 to 100 with halved colours; nothing where
/// dtrain was built without libjpeg-turbo.
std::optional<std::vector<std::uint8_t>> encode_jpeg(const PictureView& picture, int quality);

/// `picture`, a JPEG, without loss: the same coefficients in one scan, with Huffman tables of its own and a
/// restart marker for each row of blocks, so that it decodes fastest and damage stays within a row; comments,
/// EXIF and colour profiles are kept. Nothing for what is damaged, where the library cannot (lossless JPEG),
/// and where dtrain was built without libjpeg-turbo.
std::optional<std::vector<std::uint8_t>> rewrite_jpeg(const EncodedPicture& picture);

}  // namespace dtrain
