// In place of webp.cc where the build found no libwebp.
#include "runtime/base/error.h"
#include "runtime/data/images/formats.h"

namespace dtrain {

std::unique_ptr<PictureDecoder> open_webp(const EncodedPicture& picture) {
  throw DataError(picture.path, picture.offset, "a picture that this build of dtrain can decode",
                  "WebP; build dtrain where libwebp is installed (apt install libwebp-dev)");
}

}  // namespace dtrain
