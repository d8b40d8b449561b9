#include "runtime/data/sources/pixels.h"

namespace dtrain {

std::vector<Field> labelled_image(const Dims& shape, std::int64_t classes) {
  return {{.name = "image", .dtype = DType::f32, .shape = shape},
          {.name = "label", .dtype = DType::i64, .shape = {}, .values = classes}};
}

void write_pixels(const std::uint8_t* pixels, const View& out) {
  auto* const to = out.as<float>();
  if (out.is_contiguous()) {
    const std::int64_t count = out.numel();
    for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(pixels[i]) / 255.0F;
    return;
  }
  for (std::int64_t c = 0; c < out.shape[0]; ++c) {
    for (std::int64_t y = 0; y < out.shape[1]; ++y) {
      float* const row = to + c * out.strides[0] + y * out.strides[1];
      for (std::int64_t x = 0; x < out.shape[2]; ++x)
        row[x * out.strides[2]] = static_cast<float>(*pixels++) / 255.0F;
    }
  }
}

}  // namespace dtrain
