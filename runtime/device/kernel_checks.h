// The checks that the kernels of every device make of their views before they touch any memory. Each throws
// UsageError naming the operation, the argument, what was expected and what came; nothing has changed by
// then.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "runtime/device/kernels.h"

namespace dtrain {

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

/// The arguments of a convolution, forward or backward; the weight's dtype differs where it is a gradient.
void require_conv2d(std::string_view operation, const Conv2dGeometry& geometry, const View& input,
                    const View& weight, DType weight_dtype, const View& output);
/// The arguments of a pooling, forward or backward; `indices` may have null data.
void require_pool2d(std::string_view operation, const Pool2dGeometry& geometry, const View& input,
                    const View& output, const View& indices);
/// The same for its backward, where max pooling needs the indices unless there is nothing to do.
void require_pool2d_backward(const Pool2dGeometry& geometry, const View& grad_output, const View& indices,
                             const View& grad_input);
/// The arguments of a convolution with ReLU and pooling behind it; `bias` (or its gradient) and `mask` may
/// have null data.
void require_conv2d_pool2d(std::string_view operation, const Conv2dGeometry& conv, const Pool2dGeometry& pool,
                           const View& input, const View& weight, const View& bias, const View& output,
                           const View& mask);
/// Those of its backward, which needs the mask unless there is nothing to do.
void require_conv2d_pool2d_backward(const Conv2dGeometry& conv, const Pool2dGeometry& pool, const View& input,
                                    const View& weight, const View& grad_output, const View& mask,
                                    const View& grad_input, const View& grad_weight, const View& grad_bias);

/// `rows` are rows of `table`, one for each of `index` (i64).
void require_rows(std::string_view operation, const View& table, const View& index, const View& rows);

/// The input of a batch normalisation and the arrays of its channels.
void require_channels(std::string_view operation, const BatchNormChannels& channels, const View& input);
/// What its training writes: mean and inv_std, and the running statistics where there are any.
void require_statistics(std::string_view operation, const BatchNormChannels& channels);
/// The gradients of weight and bias, which may have null data.
void require_channel_gradients(std::string_view operation, const View& input, const View& grad_weight,
                               const View& grad_bias);
/// More than one value for each channel: a variance of one value means nothing.
void require_several(std::string_view operation, const View& input);
/// What the parts of a batch exchange: f64, dense, `parts` times 2 · `channels` + 1 elements.
void require_totals(std::string_view operation, std::string_view argument, const View& view,
                    std::int64_t parts, std::int64_t channels);

/// The matrices and vectors of a row norm, forward (`mean` expected where `centered`) or backward.
void require_row_norm(std::string_view operation, const View& input, const View& weight, const View& mean,
                      const View& inv_std, const View& other);

/// A dropout mask's arguments; gives how many rows it has.
std::int64_t require_mask(const MaskNumbers& numbers, double keep, const View& out);

/// The slots of an optimizer step: parameters are dense in any order of their dimensions; gradients, and
/// states that the step uses, lie as their parameters do.
void require_slots(std::span<const OptimizerSlot> slots, const SgdStep& step);
void require_slots(std::span<const OptimizerSlot> slots, const AdamWStep& step);
void require_slots(std::span<const OptimizerSlot> slots, const RmsPropStep& step);
void require_slots(std::span<const OptimizerSlot> slots, const AdagradStep& step);

}  // namespace dtrain
