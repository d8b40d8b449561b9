// WebP by libwebp: still pictures, lossy and lossless.
#include <webp/decode.h>

#include "runtime/base/error.h"
#include "runtime/data/images/formats.h"

namespace dtrain {
namespace {

class WebpDecoder final : public PictureDecoder {
 public:
  WebpDecoder(const EncodedPicture& picture, PictureSize size) : PictureDecoder(size), picture_(picture) {}

 private:
  PictureView decode_region(const Region& region, Picture& memory) override {
    memory.resize(size());
    const std::size_t bytes = memory.row_bytes() * static_cast<std::size_t>(size().height);
    if (WebPDecodeRGBInto(picture_.bytes.data(), picture_.bytes.size(), memory.row(0), bytes,
                          static_cast<int>(memory.row_bytes())) == nullptr)
      throw DataError(picture_.path, picture_.offset, "a whole WebP picture", "one damaged or cut short");
    return memory.view().part(region);
  }

  EncodedPicture picture_;
};

}  // namespace

std::unique_ptr<PictureDecoder> open_webp(const EncodedPicture& picture) {
  WebPBitstreamFeatures features;
  if (WebPGetFeatures(picture.bytes.data(), picture.bytes.size(), &features) != VP8_STATUS_OK)
    throw DataError(picture.path, picture.offset, "a WebP picture",
                    "one whose header is damaged or cut short");
  if (features.has_animation != 0)
    throw DataError(picture.path, picture.offset, "a still WebP picture", "an animation");
  check_size(picture, features.width, features.height);
  return std::make_unique<WebpDecoder>(picture, PictureSize{features.width, features.height});
}

}  // namespace dtrain
