#include "runtime/data/images/masks/class_map.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

/// Where the pixels `first` to before `first + count` of `to` are taken from, of `from`. Sums as Pillow's, so
/// that places between two pixels fall to the same side.
std::vector<int> nearest_places(int from, int to, int first, int count) {
  const double scale = static_cast<double>(from) / to;
  std::vector<int> places;
  places.reserve(static_cast<std::size_t>(count));
  double at = scale * 0.5;
  for (int place = 0; place < first + count; ++place, at += scale)
    if (place >= first) places.push_back(std::min(static_cast<int>(at), from - 1));
  return places;
}

}  // namespace

void check_class_map(const ClassMap& map, const ClassNumbers& numbers, const EncodedPicture& picture) {
  const auto bad = std::ranges::find_if(
      map.values, [&](std::uint16_t value) { return value >= numbers.classes && value != numbers.ignored; });
  if (bad == map.values.end()) return;
  const auto at = bad - map.values.begin();
  throw DataError(picture.path, picture.offset,
                  fmt::format("a class from 0 to {}, or {} for none", numbers.classes - 1, numbers.ignored),
                  fmt::format("{} in column {}, row {}", *bad, at % map.size.width, at / map.size.width));
}

void write_classes(const ClassMap& map, const ClassNumbers& numbers, const SeenRegion& seen, bool mirrored,
                   const View& mask) {
  const auto& [crop, how] = seen;
  const std::vector<int> columns =
      nearest_places(how.from.width, how.to.width, how.part.left, how.part.width);
  const std::vector<int> rows = nearest_places(how.from.height, how.to.height, how.part.top, how.part.height);
  const std::int64_t step = mirrored ? -mask.strides[1] : mask.strides[1];
  for (std::size_t y = 0; y < rows.size(); ++y) {
    const std::uint16_t* const from =
        map.values.data() + static_cast<std::ptrdiff_t>(crop.top + rows[y]) * map.size.width + crop.left;
    std::int64_t* out = mask.as<std::int64_t>() + static_cast<std::int64_t>(y) * mask.strides[0];
    if (mirrored) out += static_cast<std::int64_t>(columns.size() - 1) * mask.strides[1];
    for (std::size_t x = 0; x < columns.size(); ++x, out += step) {
      const std::uint16_t value = from[columns[x]];
      *out = value < numbers.classes && value != numbers.ignored ? value : -1;
    }
  }
}

}  // namespace dtrain
