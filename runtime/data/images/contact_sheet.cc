#include "runtime/data/images/contact_sheet.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/data/images/encode.h"
#include "runtime/data/images/resize.h"

namespace dtrain {
namespace {

constexpr int kLongestSide = 96, kMostColumns = 8;
// JPEG works in squares of this size: a cell that is made of whole ones takes no colour from its neighbours.
constexpr int kSquare = 16;

PixelNumbers stretched(std::span<const float> values) {
  const auto [least, most] = std::ranges::minmax(values);
  const float range = most > least ? most - least : 1;
  const float low = -least / range;
  return {{low, low, low}, {1 / range, 1 / range, 1 / range}};
}

std::uint8_t to_byte(float value) {
  if (!(value > 0)) return 0;  // nor a number
  return static_cast<std::uint8_t>(std::lround(255 * std::min(value, 1.0F)));
}

/// `values` [C, H, W] as pixels.
void write_pixels(std::span<const float> values, std::size_t channels, const PixelNumbers& numbers,
                  Picture& picture) {
  const auto [width, height] = picture.size();
  const std::size_t plane = static_cast<std::size_t>(width) * static_cast<std::size_t>(height);
  for (std::size_t at = 0; at < plane; ++at) {
    for (std::size_t c = 0; c < 3; ++c) {
      const std::size_t from = channels == 1 ? 0 : c;
      picture.row(0)[3 * at + c] =
          to_byte(values[from * plane + at] * numbers.deviation[from] + numbers.mean[from]);
    }
  }
}

PictureSize fitted(PictureSize size) {
  const int longest = std::max(size.width, size.height);
  if (longest <= kLongestSide) return size;
  const auto side = [&](int length) { return std::max(length * kLongestSide / longest, 1); };
  return {side(size.width), side(size.height)};
}

int whole_squares(int length) { return (length + kSquare - 1) / kSquare * kSquare; }

}  // namespace

std::optional<ContactSheet> make_contact_sheet(std::span<const float> values, const Dims& shape,
                                               const std::optional<PixelNumbers>& numbers,
                                               std::size_t most_bytes) {
  if (shape.rank() != 4 || shape.product() == 0 || (shape[1] != 1 && shape[1] != 3)) return std::nullopt;
  const auto count = static_cast<int>(shape[0]);
  const PictureSize size{static_cast<int>(shape[3]), static_cast<int>(shape[2])};
  ContactSheet sheet{.columns = std::min(count, kMostColumns), .picture = fitted(size)};
  sheet.cell = {whole_squares(sheet.picture.width), whole_squares(sheet.picture.height)};
  const int rows = (count + sheet.columns - 1) / sheet.columns;
  Picture all, one;
  all.resize({sheet.columns * sheet.cell.width, rows * sheet.cell.height});
  std::memset(all.row(0), 0, all.row_bytes() * static_cast<std::size_t>(all.size().height));
  one.resize(size);
  const PixelNumbers how = numbers ? *numbers : stretched(values);
  const auto numel = static_cast<std::size_t>(shape.product() / shape[0]);
  ResizeMemory memory;
  for (int i = 0; i < count; ++i) {
    write_pixels(values.subspan(static_cast<std::size_t>(i) * numel, numel),
                 static_cast<std::size_t>(shape[1]), how, one);
    const PictureView small = resize(one.view(), sheet.picture, Filter::bilinear, memory);
    const int left = i % sheet.columns * sheet.cell.width, top = i / sheet.columns * sheet.cell.height;
    for (int y = 0; y < small.height; ++y)
      std::memcpy(all.row(top + y) + 3 * left, small.row(y), 3 * static_cast<std::size_t>(small.width));
  }
  for (int quality = 85; quality > 0; quality -= 15) {
    auto jpeg = encode_jpeg(all.view(), quality);
    if (!jpeg) return std::nullopt;
    sheet.jpeg = std::move(*jpeg);
    if (sheet.jpeg.size() <= most_bytes) break;
  }
  return sheet;
}

}  // namespace dtrain
