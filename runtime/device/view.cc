#include "runtime/device/view.h"

namespace dtrain {
namespace {

bool same_layout(const Dims& shape, const Dims& strides, const Dims& dense) {
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] != 1 && strides[i] != dense[i]) return false;
  }
  return true;
}

}  // namespace

bool View::is_contiguous() const noexcept { return same_layout(shape, strides, contiguous_strides(shape)); }

bool View::is_channels_last() const noexcept {
  return rank() == 4 && same_layout(shape, strides, channels_last_strides(shape));
}

}  // namespace dtrain
