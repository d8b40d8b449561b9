// The checks the CUDA kernels make of their views before they launch anything.
#pragma once

#include <string>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/device/kernels.h"

namespace dtrain::cuda {

[[noreturn]] inline void refuse(std::string_view operation, const std::string& what) {
  throw UsageError("cuda kernel " + std::string(operation) + ": " + what);
}

[[noreturn]] inline void refuse_dtype(std::string_view operation, DType dtype) {
  refuse(operation, "no version for dtype " + std::string(name_of(dtype)) + "; cast the operand first");
}

inline void require_shape(std::string_view operation, std::string_view argument, const View& view,
                          const Dims& shape) {
  if (view.shape == shape) return;
  refuse(operation, "argument " + std::string(argument) + " expected shape " + shape.to_string() + ", got " +
                        view.shape.to_string());
}

inline void require_dtype(std::string_view operation, std::string_view argument, const View& view,
                          DType dtype) {
  if (view.dtype == dtype) return;
  refuse(operation, "argument " + std::string(argument) + " expected dtype " + std::string(name_of(dtype)) +
                        ", got " + std::string(name_of(view.dtype)));
}

inline void require_rank(std::string_view operation, std::string_view argument, const View& view, int rank) {
  if (view.rank() == rank) return;
  refuse(operation, "argument " + std::string(argument) + " expected " + std::to_string(rank) +
                        " dimensions, got shape " + view.shape.to_string());
}

inline void require_like(std::string_view operation, std::string_view argument, const View& view,
                         const View& like) {
  require_shape(operation, argument, view, like.shape);
  require_dtype(operation, argument, view, like.dtype);
}

/// For an optional vector argument: null data, or `extent` elements of `dtype`.
inline void require_vector(std::string_view operation, std::string_view argument, const View& view,
                           std::int64_t extent, DType dtype) {
  if (view.data == nullptr) return;
  require_shape(operation, argument, view, {extent});
  require_dtype(operation, argument, view, dtype);
}

/// How many positions a window takes along one dimension.
constexpr std::int64_t window_outputs(std::int64_t in, std::int64_t kernel, std::int64_t stride,
                                      std::int64_t pad, std::int64_t dilation) {
  const std::int64_t room = in + 2 * pad - dilation * (kernel - 1) - 1;
  return room < 0 ? 0 : room / stride + 1;
}

}  // namespace dtrain::cuda
