// In place of jpeg.cc where the build found no libjpeg-turbo.
#include "runtime/base/error.h"
#include "runtime/data/images/formats.h"

namespace dtrain {

std::unique_ptr<PictureDecoder> open_jpeg(const EncodedPicture& picture) {
  throw DataError(picture.path, picture.offset, "a picture that this build of dtrain can decode",
                  "JPEG; build dtrain where libjpeg-turbo is installed (apt install libjpeg62-turbo-dev)");
}

}  // namespace dtrain
