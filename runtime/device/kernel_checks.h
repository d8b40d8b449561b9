// What the checks of kernels' arguments are made of (checked_kernels.h). Each throws UsageError naming the
// operation, the argument, what was expected and what came.
#pragma once

#include <string>
#include <string_view>

#include "runtime/device/kernels.h"

namespace dtrain {

/// How a message names an argument.
std::string as_text(std::string_view argument);
/// Throws UsageError: "kernel `operation`: `what`".
[[noreturn]] void refuse(std::string_view operation, const std::string& what);
/// For a dtype that the device has no version of `operation` for.
[[noreturn]] void refuse_dtype(std::string_view operation, DType dtype);

void require_shape(std::string_view operation, std::string_view argument, const View& view,
                   const Dims& shape);
void require_dtype(std::string_view operation, std::string_view argument, const View& view, DType dtype);
void require_rank(std::string_view operation, std::string_view argument, const View& view, int rank);
/// `view` has `like`'s shape and dtype.
void require_like(std::string_view operation, std::string_view argument, const View& view, const View& like);
/// The same for an argument that may have null data.
void require_optional(std::string_view operation, std::string_view argument, const View& view,
                      const View& like);
/// For an optional vector argument: null data, or `extent` elements of `dtype`.
void require_vector(std::string_view operation, std::string_view argument, const View& view,
                    std::int64_t extent, DType dtype);
/// For what is written: each element has memory of its own, which a broadcast view has not.
void require_writable(std::string_view operation, std::string_view argument, const View& view);

/// True for the floating types of 16 bits, which are computed with in float32: bf16, and on GPUs f16.
constexpr bool is_half(DType dtype) noexcept { return dtype == DType::bf16 || dtype == DType::f16; }

/// The dtype to expect of a parameter or its gradient: f32 is allowed beside bf16 and f16 activations.
DType parameter_dtype(const View& parameter, const View& activation);

/// How many positions a window takes along one dimension.
constexpr std::int64_t window_outputs(std::int64_t in, std::int64_t kernel, std::int64_t stride,
                                      std::int64_t pad, std::int64_t dilation) {
  const std::int64_t room = in + 2 * pad - dilation * (kernel - 1) - 1;
  return room < 0 ? 0 : room / stride + 1;
}

/// Strides, dilations, groups and kernel of at least 1, padding of at least 0, for a weight of rank 4.
void require_geometry(std::string_view operation, const Conv2dGeometry& geometry, const View& weight);
/// Kernel and strides of at least 1, padding of at most half the kernel.
void require_geometry(std::string_view operation, const Pool2dGeometry& geometry);

/// How many rows a dropout mask has.
inline std::int64_t mask_rows(const MaskNumbers& numbers, const View& out) {
  if (numbers.rows.data != nullptr) return numbers.rows.numel();
  return out.rank() == 0 ? 1 : out.shape[0];
}

/// `dims` with an extent of 1 in dimension `dim`: how many lines there are along it.
inline Dims without_dim(Dims dims, int dim) {
  dims[dim] = 1;
  return dims;
}

}  // namespace dtrain
