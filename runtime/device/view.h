// What a kernel sees of a tensor: a borrowed pointer with dtype, shape and strides. It owns nothing.
#pragma once

#include "runtime/base/dtype.h"
#include "runtime/device/dims.h"

namespace dtrain {

/// A borrowed strided array. Strides are in elements and may be 0 (broadcast); data is valid as long as its
/// owner.
struct View {
  void* data = nullptr;
  DType dtype = DType::f32;
  Dims shape;
  Dims strides;

  int rank() const noexcept { return shape.rank(); }
  std::int64_t numel() const noexcept { return shape.product(); }
  /// Row-major and dense; extents of 1 may have any stride.
  bool is_contiguous() const noexcept;
  /// Rank 4, dense in N, H, W, C order; extents of 1 may have any stride.
  bool is_channels_last() const noexcept;
  template <class T>
  T* as() const noexcept {
    return static_cast<T*>(data);
  }
};

}  // namespace dtrain
