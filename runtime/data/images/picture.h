// A picture in memory: 8-bit RGB, pixel by pixel, as all that decodes and transforms pictures here takes and
// gives it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dtrain {

struct PictureSize {
  int width = 0, height = 0;
  bool operator==(const PictureSize&) const = default;
};

/// A rectangle of pixels: columns [left, left + width), rows [top, top + height).
struct Region {
  int left = 0, top = 0, width = 0, height = 0;
  bool operator==(const Region&) const = default;
};

/// Pixels that are someone else's: three bytes a pixel (red, green, blue), `row_bytes` from row to row.
struct PictureView {
  const std::uint8_t* pixels = nullptr;
  int width = 0, height = 0;
  std::size_t row_bytes = 0;

  const std::uint8_t* row(int y) const noexcept { return pixels + static_cast<std::size_t>(y) * row_bytes; }
  /// The pixels of `region`, which lies inside, unchecked.
  PictureView part(const Region& region) const noexcept {
    return {row(region.top) + 3 * static_cast<std::size_t>(region.left), region.width, region.height,
            row_bytes};
  }
};

/// Owns its pixels; rows follow each other without gaps. Memory is kept when a picture becomes smaller, so
/// that one object serves many pictures.
class Picture {
 public:
  /// Pixels are then whatever was there.
  void resize(PictureSize size) {
    size_ = size;
    pixels_.resize(3 * static_cast<std::size_t>(size.width) * static_cast<std::size_t>(size.height));
  }
  PictureSize size() const noexcept { return size_; }
  std::uint8_t* row(int y) noexcept { return pixels_.data() + static_cast<std::size_t>(y) * row_bytes(); }
  std::size_t row_bytes() const noexcept { return 3 * static_cast<std::size_t>(size_.width); }
  PictureView view() const noexcept { return {pixels_.data(), size_.width, size_.height, row_bytes()}; }

 private:
  PictureSize size_;
  std::vector<std::uint8_t> pixels_;
};

/// A whole number for each pixel, row by row: its class.
struct ClassMap {
  PictureSize size;
  std::vector<std::uint16_t> values;
};

}  // namespace dtrain
