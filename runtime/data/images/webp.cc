// WebP by libwebp: lossy and lossless pictures, and of an animation the first frame, as Pillow opens it.
#include <webp/decode.h>

#include <cstring>
#include <optional>

#include "runtime/base/error.h"
#include "runtime/data/images/formats.h"

namespace dtrain {
namespace {

using Bytes = std::span<const std::uint8_t>;

/// A picture, or a frame of one, and where it is in that.
struct Frame {
  Bytes bytes;
  Region place;
};

/// Little-endian.
std::uint32_t number(Bytes bytes, std::size_t at, std::size_t length) {
  std::uint32_t value = 0;
  for (std::size_t i = length; i > 0; --i) value = value << 8 | bytes[at + i - 1];
  return value;
}

/// Chunks of a name, a size and a content: the first ANMF is the first frame, its place in front of the
/// frame's own chunks. Nothing where there is none, or the file is shorter than it says.
std::optional<Frame> first_frame(Bytes file) {
  constexpr std::size_t kFile = 12, kChunk = 8, kPlace = 16;
  if (file.size() < kFile || number(file, 4, 4) > file.size() - kChunk) return std::nullopt;
  for (std::size_t at = kFile; file.size() - at >= kChunk;) {
    const Bytes name = file.subspan(at, 4);
    const std::size_t size = number(file, at + 4, 4);
    at += kChunk;
    if (size > file.size() - at) return std::nullopt;
    if (std::memcmp(name.data(), "ANMF", name.size()) == 0) {
      if (size < kPlace) return std::nullopt;
      const auto of_place = [&](std::size_t i) { return static_cast<int>(number(file, at + 3 * i, 3)); };
      return Frame{file.subspan(at + kPlace, size - kPlace),
                   {2 * of_place(0), 2 * of_place(1), 1 + of_place(2), 1 + of_place(3)}};
    }
    at = std::min(file.size(), at + size + size % 2);
  }
  return std::nullopt;
}

class WebpDecoder final : public PictureDecoder {
 public:
  WebpDecoder(const EncodedPicture& picture, PictureSize size, const Frame& frame)
      : PictureDecoder(size), picture_(picture), frame_(frame) {}

 private:
  PictureView decode_region(const Region& region, Picture& memory) override {
    memory.resize(size());
    const std::size_t row_bytes = memory.row_bytes(),
                      bytes = row_bytes * static_cast<std::size_t>(size().height);
    const Region& place = frame_.place;
    if (place.width < size().width || place.height < size().height) std::memset(memory.row(0), 0, bytes);
    const std::size_t begin =
        row_bytes * static_cast<std::size_t>(place.top) + 3 * static_cast<std::size_t>(place.left);
    if (WebPDecodeRGBInto(frame_.bytes.data(), frame_.bytes.size(), memory.row(0) + begin, bytes - begin,
                          static_cast<int>(row_bytes)) == nullptr)
      throw DataError(picture_.path, picture_.offset, "a whole WebP picture", "one damaged or cut short");
    return memory.view().part(region);
  }

  EncodedPicture picture_;
  Frame frame_;
};

}  // namespace

std::unique_ptr<PictureDecoder> open_webp(const EncodedPicture& picture) {
  WebPBitstreamFeatures features;
  if (WebPGetFeatures(picture.bytes.data(), picture.bytes.size(), &features) != VP8_STATUS_OK)
    throw DataError(picture.path, picture.offset, "a WebP picture",
                    "one whose header is damaged or cut short");
  check_size(picture, features.width, features.height);
  const PictureSize size{features.width, features.height};
  if (features.has_animation == 0)
    return std::make_unique<WebpDecoder>(picture, size,
                                         Frame{picture.bytes, {0, 0, size.width, size.height}});
  const auto frame = first_frame(picture.bytes);
  const bool fits = frame && frame->place.width <= size.width - frame->place.left &&
                    frame->place.height <= size.height - frame->place.top &&
                    WebPGetFeatures(frame->bytes.data(), frame->bytes.size(), &features) == VP8_STATUS_OK &&
                    features.width == frame->place.width && features.height == frame->place.height;
  if (!fits)
    throw DataError(picture.path, picture.offset, "a WebP animation with a whole first frame",
                    "one damaged or cut short");
  return std::make_unique<WebpDecoder>(picture, size, *frame);
}

}  // namespace dtrain
