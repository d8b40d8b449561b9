// Compressed pictures as pixels: JPEG, PNG and WebP, told by their content, with the bytes that Pillow's
// `Image.open(file).convert("RGB")` gives.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "runtime/data/images/picture.h"

namespace dtrain {

/// A file, or a member of one, as it is stored. What it refers to must outlive its use.
struct EncodedPicture {
  std::span<const std::uint8_t> bytes;
  std::string path;         ///< for messages
  std::int64_t offset = 0;  ///< of the first byte in the file of that name
};

enum class PictureFormat { jpeg, png, webp };

/// By the first bytes, whatever the file is called; nothing for any other content.
std::optional<PictureFormat> picture_format(std::span<const std::uint8_t> bytes) noexcept;

/// One picture that is about to be decoded; used by one thread.
///
///     const auto decoder = open_picture({bytes, "cat.jpg"});
///     Picture memory;
///     const PictureView whole = decoder->decode({0, 0, decoder->size().width, decoder->size().height},
///     memory);
class PictureDecoder {
 public:
  virtual ~PictureDecoder() = default;

  PictureSize size() const noexcept { return size_; }
  /// The pixels of `region`, in `memory`, whose size may be any; call once. They are those of the whole
  /// picture to the last bit; of a JPEG only what is needed for them is decoded. Throws DataError naming path
  /// and offset for content that is damaged or cut short (of a JPEG that is cut short for every region), and
  /// UsageError for a region that is empty or not inside.
  PictureView decode(const Region& region, Picture& memory);

 protected:
  explicit PictureDecoder(PictureSize size) : size_(size) {}
  virtual PictureView decode_region(const Region& region, Picture& memory) = 0;

 private:
  PictureSize size_;
};

/// Reads the header. Gray, palettes, two and four bits, CMYK (inverted, as Adobe writes it) and YCCK become
/// RGB; alpha is dropped, not blended; of 16 bits a channel the upper 8 are taken, but of gray alone values
/// above 255 become 255, as Pillow does it; EXIF's orientation and colour profiles are ignored. Throws
/// DataError for anything else, for a format that this build has no library for, and for more than
/// 178,956,970 pixels, where Pillow refuses too.
std::unique_ptr<PictureDecoder> open_picture(const EncodedPicture& picture);

/// Reads a PNG whose pixels are numbers: the indices of a palette, whatever its colours, or gray of 1, 8 or
/// 16 bits, as numpy.array(Image.open(file)) gives them. Throws DataError for another picture, and as
/// open_picture().
ClassMap decode_class_map(const EncodedPicture& picture);

}  // namespace dtrain
