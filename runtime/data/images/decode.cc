#include "runtime/data/images/decode.h"

#include <fmt/format.h>

#include <cstring>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/data/images/formats.h"

namespace dtrain {
namespace {

/// Twice the number at which Pillow warns of a decompression bomb.
constexpr std::int64_t kMostPixels = 178'956'970;

bool begins_with(std::span<const std::uint8_t> bytes, std::string_view magic, std::size_t at = 0) {
  return bytes.size() >= at + magic.size() && std::memcmp(bytes.data() + at, magic.data(), magic.size()) == 0;
}

/// What it may be instead, for the message.
std::string kind_of(std::span<const std::uint8_t> bytes) {
  if (bytes.empty()) return "an empty file";
  if (begins_with(bytes, "BM")) return "BMP";
  if (begins_with(bytes, "GIF8")) return "GIF";
  if (begins_with(bytes, "II*") || begins_with(bytes, "MM")) return "TIFF";
  if (bytes[0] == 'P' && bytes.size() > 1 && bytes[1] >= '1' && bytes[1] <= '7') return "a Netpbm picture";
  std::string text;
  for (const std::uint8_t byte : bytes.first(std::min<std::size_t>(bytes.size(), 8)))
    text += fmt::format("{}{:02x}", text.empty() ? "" : " ", byte);
  return "bytes " + text;
}

}  // namespace

void check_size(const EncodedPicture& picture, std::int64_t width, std::int64_t height) {
  if (width >= 1 && height >= 1 && width <= kMostPixels / height) return;
  throw DataError(picture.path, picture.offset, fmt::format("a picture of 1 to {} pixels", kMostPixels),
                  fmt::format("{} x {}", width, height));
}

PictureView PictureDecoder::decode(const Region& region, Picture& memory) {
  if (region.left < 0 || region.top < 0 || region.width < 1 || region.height < 1 ||
      region.left > size_.width - region.width || region.top > size_.height - region.height) {
    throw UsageError(fmt::format("picture: expected a region inside {} x {}, got {} x {} from ({}, {})",
                                 size_.width, size_.height, region.width, region.height, region.left,
                                 region.top));
  }
  return decode_region(region, memory);
}

std::optional<PictureFormat> picture_format(std::span<const std::uint8_t> bytes) noexcept {
  if (begins_with(bytes, "\xff\xd8\xff")) return PictureFormat::jpeg;
  if (begins_with(bytes, "\x89PNG\r\n\x1a\n")) return PictureFormat::png;
  if (begins_with(bytes, "RIFF") && begins_with(bytes, "WEBP", 8)) return PictureFormat::webp;
  return std::nullopt;
}

std::unique_ptr<PictureDecoder> open_picture(const EncodedPicture& picture) {
  const auto format = picture_format(picture.bytes);
  if (format == PictureFormat::jpeg) return open_jpeg(picture);
  if (format == PictureFormat::png) return open_png(picture);
  if (format == PictureFormat::webp) return open_webp(picture);
  throw DataError(picture.path, picture.offset, "a JPEG, PNG or WebP picture", kind_of(picture.bytes));
}

ClassMap decode_class_map(const EncodedPicture& picture) {
  if (picture_format(picture.bytes) == PictureFormat::png) return read_png_numbers(picture);
  throw DataError(picture.path, picture.offset, "a PNG with the class of each pixel",
                  picture_format(picture.bytes) ? "a JPEG or WebP picture" : kind_of(picture.bytes));
}

}  // namespace dtrain
