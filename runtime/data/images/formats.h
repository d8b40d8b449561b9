// The decoders that open_picture() chooses from, one a library; without the library, what refuses.
#pragma once

#include "runtime/data/images/decode.h"

namespace dtrain {

/// Each reads the header of a picture of its format. Throws as open_picture().
std::unique_ptr<PictureDecoder> open_jpeg(const EncodedPicture& picture);
std::unique_ptr<PictureDecoder> open_png(const EncodedPicture& picture);
std::unique_ptr<PictureDecoder> open_webp(const EncodedPicture& picture);

/// The numbers in a PNG's pixels, as decode_class_map().
ClassMap read_png_numbers(const EncodedPicture& picture);

/// Throws DataError unless there is at least one pixel and no more than Pillow decodes.
void check_size(const EncodedPicture& picture, std::int64_t width, std::int64_t height);

}  // namespace dtrain
