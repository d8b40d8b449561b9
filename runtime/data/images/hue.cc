#include "runtime/data/images/hue.h"

#include <algorithm>
#include <cmath>

namespace dtrain {
namespace {

struct HueSaturation {
  std::uint8_t hue = 0, saturation = 0;
};

// Where a number is float and where it is double decides bits: as Pillow has it.
HueSaturation hue_of(int red, int green, int blue, int most, int least) {
  if (most == least) return {};
  const auto spread = static_cast<float>(most - least);
  const float from_red = static_cast<float>(most - red) / spread;
  const float from_green = static_cast<float>(most - green) / spread;
  const float from_blue = static_cast<float>(most - blue) / spread;
  float hue = 0;
  if (red == most) {
    hue = from_blue - from_green;
  } else if (green == most) {
    hue = static_cast<float>(2.0 + double{from_red} - double{from_blue});
  } else {
    hue = static_cast<float>(4.0 + double{from_green} - double{from_red});
  }
  hue = static_cast<float>(std::fmod(double{hue} / 6.0 + 1.0, 1.0));
  const float saturation = spread / static_cast<float>(most);
  return {static_cast<std::uint8_t>(std::clamp(static_cast<int>(double{hue} * 255.0), 0, 255)),
          static_cast<std::uint8_t>(std::clamp(static_cast<int>(double{saturation} * 255.0), 0, 255))};
}

std::uint8_t rounded(double value) {
  return static_cast<std::uint8_t>(std::clamp(static_cast<int>(std::round(value)), 0, 255));
}

void write_rgb(HueSaturation color, std::uint8_t value, std::uint8_t* rgb) {
  if (color.saturation == 0) {
    std::fill_n(rgb, 3, value);
    return;
  }
  const double place = static_cast<float>(color.hue) * 6.0 / 255.0;
  const int sector = static_cast<int>(std::floor(place));
  const auto rest = static_cast<float>(place - static_cast<double>(static_cast<float>(sector)));
  const auto saturation = static_cast<float>(static_cast<float>(color.saturation) / 255.0);
  const auto bright = static_cast<double>(value);
  const float falling = saturation * rest;
  const std::uint8_t low = rounded(bright * (1.0 - double{saturation}));
  const std::uint8_t down = rounded(bright * (1.0 - double{falling}));
  const std::uint8_t up = rounded(bright * (1.0 - double{saturation} * (1.0 - double{rest})));
  const std::uint8_t channels[6][3] = {{value, up, low},   {down, value, low}, {low, value, up},
                                       {low, down, value}, {up, low, value},   {value, low, down}};
  std::copy_n(channels[sector % 6], 3, rgb);
}

}  // namespace

void turn_hue(Picture& picture, double turns) {
  const int step = static_cast<int>(turns * 255);
  for (int y = 0; y < picture.size().height; ++y) {
    std::uint8_t* pixel = picture.row(y);
    for (int x = 0; x < picture.size().width; ++x, pixel += 3) {
      const auto [least, most] = std::minmax({pixel[0], pixel[1], pixel[2]});
      HueSaturation color = hue_of(pixel[0], pixel[1], pixel[2], most, least);
      color.hue = static_cast<std::uint8_t>(color.hue + step);
      write_rgb(color, most, pixel);
    }
  }
}

}  // namespace dtrain
