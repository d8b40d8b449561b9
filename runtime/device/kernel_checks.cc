#include "runtime/device/kernel_checks.h"

#include <algorithm>
#include <initializer_list>
#include <limits>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

/// Every number of a geometry within [least, what no sum or product of two overflows by].
bool all_within(std::int64_t least, std::initializer_list<std::int64_t> values) {
  return std::all_of(values.begin(), values.end(), [least](std::int64_t value) {
    return value >= least && value <= std::numeric_limits<std::int32_t>::max();
  });
}

std::string pair_text(std::int64_t h, std::int64_t w) { return std::to_string(h) + "x" + std::to_string(w); }

}  // namespace

std::string as_text(std::string_view argument) { return "argument " + std::string(argument); }

void refuse(std::string_view operation, const std::string& what) {
  throw UsageError("kernel " + std::string(operation) + ": " + what);
}

void refuse_dtype(std::string_view operation, DType dtype) {
  refuse(operation,
         "the device has no version for dtype " + std::string(name_of(dtype)) + "; cast the operand first");
}

void require_shape(std::string_view operation, std::string_view argument, const View& view,
                   const Dims& shape) {
  if (view.shape == shape) return;
  refuse(operation,
         as_text(argument) + " expected shape " + shape.to_string() + ", got " + view.shape.to_string());
}

void require_dtype(std::string_view operation, std::string_view argument, const View& view, DType dtype) {
  if (view.dtype == dtype) return;
  refuse(operation, as_text(argument) + " expected dtype " + std::string(name_of(dtype)) + ", got " +
                        std::string(name_of(view.dtype)));
}

void require_rank(std::string_view operation, std::string_view argument, const View& view, int rank) {
  if (view.rank() == rank) return;
  refuse(operation, as_text(argument) + " expected " + std::to_string(rank) + " dimensions, got shape " +
                        view.shape.to_string());
}

void require_like(std::string_view operation, std::string_view argument, const View& view, const View& like) {
  require_shape(operation, argument, view, like.shape);
  require_dtype(operation, argument, view, like.dtype);
}

void require_optional(std::string_view operation, std::string_view argument, const View& view,
                      const View& like) {
  if (view.data != nullptr) require_like(operation, argument, view, like);
}

void require_vector(std::string_view operation, std::string_view argument, const View& view,
                    std::int64_t extent, DType dtype) {
  if (view.data == nullptr) return;
  require_shape(operation, argument, view, {extent});
  require_dtype(operation, argument, view, dtype);
}

void require_writable(std::string_view operation, std::string_view argument, const View& view) {
  for (int i = 0; view.data != nullptr && i < view.rank(); ++i) {
    if (view.shape[i] < 2 || view.strides[i] != 0) continue;
    refuse(operation, as_text(argument) + " expected memory for each of its elements, got shape " +
                          view.shape.to_string() + " broadcast by strides " + view.strides.to_string());
  }
}

DType parameter_dtype(const View& parameter, const View& activation) {
  return parameter.dtype == DType::f32 && is_half(activation.dtype) ? DType::f32 : activation.dtype;
}

void require_geometry(std::string_view operation, const Conv2dGeometry& g, const View& weight) {
  if (all_within(1, {g.stride_h, g.stride_w, g.dilation_h, g.dilation_w, g.groups, weight.shape[2],
                     weight.shape[3]}) &&
      all_within(0, {g.pad_h, g.pad_w}) && weight.shape[0] % g.groups == 0) {
    return;
  }
  refuse(operation,
         "expected a kernel, strides, dilations and groups of 1 to 2147483647, padding from 0, and " +
             std::to_string(weight.shape[0]) + " outputs divisible by groups, got weight " +
             weight.shape.to_string() + ", groups " + std::to_string(g.groups) + ", stride " +
             pair_text(g.stride_h, g.stride_w) + ", dilation " + pair_text(g.dilation_h, g.dilation_w) +
             ", padding " + pair_text(g.pad_h, g.pad_w));
}

void require_geometry(std::string_view operation, const Pool2dGeometry& g) {
  if (all_within(1, {g.kernel_h, g.kernel_w, g.stride_h, g.stride_w}) && all_within(0, {g.pad_h, g.pad_w}) &&
      g.pad_h * 2 <= g.kernel_h && g.pad_w * 2 <= g.kernel_w) {
    return;
  }
  refuse(operation,
         "expected a kernel and strides of 1 to 2147483647, and padding from 0 to half the kernel, "
         "got kernel " +
             pair_text(g.kernel_h, g.kernel_w) + ", stride " + pair_text(g.stride_h, g.stride_w) +
             ", padding " + pair_text(g.pad_h, g.pad_w));
}

}  // namespace dtrain
