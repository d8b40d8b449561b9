// In place of png.cc where the build found no libpng.
#include "runtime/base/error.h"
#include "runtime/data/images/formats.h"

namespace dtrain {
namespace {

[[noreturn]] void refuse(const EncodedPicture& picture) {
  throw DataError(picture.path, picture.offset, "a picture that this build of dtrain can decode",
                  "PNG; build dtrain where libpng is installed (apt install libpng-dev)");
}

}  // namespace

std::unique_ptr<PictureDecoder> open_png(const EncodedPicture& picture) { refuse(picture); }

ClassMap read_png_numbers(const EncodedPicture& picture) { refuse(picture); }

}  // namespace dtrain
