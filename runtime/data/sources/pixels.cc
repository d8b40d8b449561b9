#include "runtime/data/sources/pixels.h"

namespace dtrain {

std::vector<Field> labelled_image(const Dims& shape, std::int64_t classes) {
  return {{.name = "image", .dtype = DType::f32, .shape = shape},
          {.name = "label", .dtype = DType::i64, .shape = {}, .values = classes}};
}

namespace {

template <class T, class Convert>
void write(const std::uint8_t* pixels, const View& out, Convert convert) {
  auto* const to = out.as<T>();
  const std::int64_t channels = out.shape[0], height = out.shape[1], width = out.shape[2];
  const std::int64_t plane = out.strides[0], row = out.strides[1], step = out.strides[2];
  if (step == 1 && row == width && (plane == height * width || channels == 1)) {
    const std::int64_t count = channels * height * width;
    for (std::int64_t i = 0; i < count; ++i) to[i] = convert(pixels[i]);
    return;
  }
  for (std::int64_t c = 0; c < channels; ++c) {
    for (std::int64_t y = 0; y < height; ++y) {
      for (std::int64_t x = 0; x < width; ++x) to[c * plane + y * row + x * step] = convert(*pixels++);
    }
  }
}

}  // namespace

void write_pixels(const std::uint8_t* pixels, const View& out) {
  if (out.dtype == DType::u8)
    return write<std::uint8_t>(pixels, out, [](std::uint8_t pixel) { return pixel; });
  write<float>(pixels, out, [](std::uint8_t pixel) { return static_cast<float>(pixel) / 255.0F; });
}

}  // namespace dtrain
