#include "runtime/data/images/files/orientation.h"

#include <cstring>
#include <string_view>

namespace dtrain {
namespace {

using namespace std::string_view_literals;

constexpr std::uint8_t kScan = 0xda, kExif = 0xe1, kFill = 0xff;
constexpr unsigned kOrientationTag = 0x0112, kShort = 3;

/// Numbers of a TIFF block in its byte order; 0 behind its end.
class Tiff {
 public:
  explicit Tiff(std::span<const std::uint8_t> bytes) : bytes_(bytes) {
    little_ = bytes.size() > 1 && bytes[0] == 'I';
  }
  unsigned number(std::size_t at, std::size_t count) const {
    unsigned value = 0;
    if (at > bytes_.size() || count > bytes_.size() - at) return 0;
    for (std::size_t i = 0; i < count; ++i) value = value << 8 | bytes_[at + (little_ ? count - 1 - i : i)];
    return value;
  }

 private:
  std::span<const std::uint8_t> bytes_;
  bool little_ = false;
};

/// Of the TIFF block behind "Exif\0\0".
int orientation_of(std::span<const std::uint8_t> block) {
  const Tiff tiff(block);
  if (tiff.number(2, 2) != 42) return 1;
  const std::size_t directory = tiff.number(4, 4);
  const unsigned entries = tiff.number(directory, 2);
  for (unsigned i = 0; i < entries; ++i) {
    const std::size_t entry = directory + 2 + std::size_t{12} * i;
    if (entry > block.size()) return 1;
    if (tiff.number(entry, 2) != kOrientationTag) continue;
    const unsigned value = tiff.number(entry + 8, 2);
    return tiff.number(entry + 2, 2) == kShort && value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

/// What orientation N means: first the axes are exchanged, then columns, then rows are mirrored.
struct Turn {
  bool exchanged = false, mirrored = false, upside_down = false;
};

Turn turn_of(int orientation) {
  constexpr Turn kTurns[] = {{},                    // 1
                             {false, true, false},  // 2
                             {false, true, true},   // 3
                             {false, false, true},  // 4
                             {true, false, false},  // 5
                             {true, true, false},   // 6
                             {true, true, true},    // 7
                             {true, false, true}};  // 8
  return kTurns[orientation - 1];
}

class UprightDecoder final : public PictureDecoder {
 public:
  UprightDecoder(std::unique_ptr<PictureDecoder> picture, Turn turn, PictureSize size)
      : PictureDecoder(size), picture_(std::move(picture)), turn_(turn) {}

 private:
  PictureView decode_region(const Region& region, Picture& memory) override {
    Region from = region;
    if (turn_.mirrored) from.left = size().width - region.left - region.width;
    if (turn_.upside_down) from.top = size().height - region.top - region.height;
    if (turn_.exchanged) from = {from.top, from.left, from.height, from.width};
    Picture stored;
    const PictureView pixels = picture_->decode(from, stored);
    memory.resize({region.width, region.height});
    for (int y = 0; y < region.height; ++y) {
      const int row = turn_.upside_down ? region.height - 1 - y : y;
      std::uint8_t* to = memory.row(y);
      for (int x = 0; x < region.width; ++x, to += 3) {
        const int column = turn_.mirrored ? region.width - 1 - x : x;
        std::memcpy(to, turn_.exchanged ? pixels.row(column) + 3 * row : pixels.row(row) + 3 * column, 3);
      }
    }
    return memory.view();
  }

  std::unique_ptr<PictureDecoder> picture_;
  Turn turn_;
};

}  // namespace

int exif_orientation(std::span<const std::uint8_t> bytes) noexcept {
  if (picture_format(bytes) != PictureFormat::jpeg) return 1;
  for (std::size_t at = 2; at + 4 <= bytes.size() && bytes[at] == kFill;) {
    const std::uint8_t marker = bytes[at + 1];
    if (marker == kFill) {  // padding
      ++at;
      continue;
    }
    if (marker == kScan) return 1;
    const std::size_t length = static_cast<std::size_t>(bytes[at + 2]) << 8 | bytes[at + 3];
    if (length < 2 || length > bytes.size() - at - 2) return 1;
    constexpr std::string_view kName = "Exif\0\0"sv;
    const auto content = bytes.subspan(at + 4, length - 2);
    if (marker == kExif && content.size() >= kName.size() &&
        std::memcmp(content.data(), kName.data(), kName.size()) == 0)
      return orientation_of(content.subspan(kName.size()));
    at += 2 + length;
  }
  return 1;
}

std::unique_ptr<PictureDecoder> turned_upright(std::unique_ptr<PictureDecoder> picture, int orientation) {
  if (orientation == 1) return picture;
  const Turn turn = turn_of(orientation);
  PictureSize size = picture->size();
  if (turn.exchanged) size = {size.height, size.width};
  return std::make_unique<UprightDecoder>(std::move(picture), turn, size);
}

}  // namespace dtrain
