// Many small pictures as one, for a page that shows what a network sees.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/data/images/picture.h"
#include "runtime/data/source.h"

namespace dtrain {

/// Picture i lies in column i mod `columns`, at multiples of `cell`; the sheet is filled up with black.
struct ContactSheet {
  int columns = 0;
  PictureSize cell = {}, picture = {};
  std::vector<std::uint8_t> jpeg = {};
};

/// Of `values` [N, C, H, W], at least one, dense, with C 1 or 3: made smaller until no side is longer than 96
/// pixels, and compressed until the JPEG has at most `most_bytes` or quality cannot go down any more. Without
/// `numbers` the least value becomes black and the largest white. Nothing for other shapes, and where dtrain
/// was built without libjpeg-turbo.
std::optional<ContactSheet> make_contact_sheet(std::span<const float> values, const Dims& shape,
                                               const std::optional<PixelNumbers>& numbers,
                                               std::size_t most_bytes);

}  // namespace dtrain
