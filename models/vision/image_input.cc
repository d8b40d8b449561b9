#include "models/vision/image_input.h"

#include <fmt/format.h>

#include "runtime/base/error.h"

namespace dtrain {

NetworkInput image_input(const Source& source) {
  const Field* const image = find_field(source.fields(), "image");
  const Field* const label = find_field(source.fields(), "label");
  const bool images = image != nullptr && image->dtype == DType::f32 && image->shape.rank() == 3;
  const bool labels =
      label != nullptr && label->dtype == DType::i64 && label->shape.rank() == 0 && label->values > 0;
  if (!images || !labels) {
    throw UsageError(
        fmt::format("{}: expected labelled images (image float32 [C, H, W], label int64 [] with a number of "
                    "classes), got {}",
                    source.name(), describe(source.fields())));
  }
  return {image->shape[0], image->shape[1], image->shape[2], label->values};
}

}  // namespace dtrain
