// In place of jpeg_writer.cc where the build found no libjpeg-turbo.
#include "runtime/data/images/encode.h"

namespace dtrain {

std::optional<std::vector<std::uint8_t>> encode_jpeg(const PictureView& /*picture*/, int /*quality*/) {
  return std::nullopt;
}

std::optional<std::vector<std::uint8_t>> rewrite_jpeg(const EncodedPicture& /*picture*/) {
  return std::nullopt;
}

}  // namespace dtrain
