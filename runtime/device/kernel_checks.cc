#include "runtime/device/kernel_checks.h"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <utility>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

std::string as_text(std::string_view argument) { return "argument " + std::string(argument); }

void require_slot_array(std::string_view operation, std::string_view argument, const View& view,
                        const View& param) {
  require_like(operation, argument, view, param);
  if (view.data == nullptr && param.numel() != 0) refuse(operation, as_text(argument) + " has no data");
  for (int i = 0; i < view.rank(); ++i) {
    if (view.shape[i] == 1 || view.strides[i] == param.strides[i]) continue;
    refuse(operation, as_text(argument) + " expected the parameter's strides " + param.strides.to_string() +
                          ", got " + view.strides.to_string());
  }
}

/// Dense in some order of its dimensions: each stride is the product of the extents inside it.
bool is_dense(const View& view) {
  std::int64_t expected = 1;
  for (int found = 0; found < view.rank(); ++found) {
    int at = 0;
    while (at < view.rank() && (view.shape[at] == 1 || view.strides[at] != expected)) ++at;
    if (at == view.rank()) break;
    expected *= view.shape[at];
  }
  return expected == view.numel();
}

void require_parameter(std::string_view operation, const View& view) {
  if (!is_floating(view.dtype)) refuse_dtype(operation, view.dtype);
  if (view.numel() == 0 || is_dense(view)) return;
  refuse(operation, as_text("param") + " expected a dense array, got shape " + view.shape.to_string() +
                        " with strides " + view.strides.to_string());
}

/// Every number of a geometry within [least, what no sum or product of two overflows by].
bool all_within(std::int64_t least, std::initializer_list<std::int64_t> values) {
  return std::all_of(values.begin(), values.end(), [least](std::int64_t value) {
    return value >= least && value <= std::numeric_limits<std::int32_t>::max();
  });
}

std::string pair_text(std::int64_t h, std::int64_t w) { return std::to_string(h) + "x" + std::to_string(w); }

/// Where a convolution's output would lie: its shape, without data.
View output_of(const Conv2dGeometry& g, const View& input, const View& weight) {
  const std::int64_t oh = window_outputs(input.shape[2], weight.shape[2], g.stride_h, g.pad_h, g.dilation_h);
  const std::int64_t ow = window_outputs(input.shape[3], weight.shape[3], g.stride_w, g.pad_w, g.dilation_w);
  return {nullptr, input.dtype, {input.shape[0], weight.shape[0], oh, ow}, {0, 0, 0, 0}};
}

}  // namespace

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

void require_conv2d(std::string_view operation, const Conv2dGeometry& g, const View& input,
                    const View& weight, DType weight_dtype, const View& output) {
  require_rank(operation, "input", input, 4);
  require_rank(operation, "weight", weight, 4);
  require_dtype(operation, "weight", weight, weight_dtype);
  require_dtype(operation, "output", output, input.dtype);
  require_geometry(operation, g, weight);
  const Dims weight_shape = {weight.shape[0], input.shape[1] / g.groups, weight.shape[2], weight.shape[3]};
  require_shape(operation, "weight", weight, weight_shape);
  require_shape(operation, "output", output, output_of(g, input, weight).shape);
}

void require_pool2d(std::string_view operation, const Pool2dGeometry& g, const View& input,
                    const View& output, const View& indices) {
  require_rank(operation, "input", input, 4);
  require_dtype(operation, "output", output, input.dtype);
  require_geometry(operation, g);
  const std::int64_t oh = window_outputs(input.shape[2], g.kernel_h, g.stride_h, g.pad_h, 1);
  const std::int64_t ow = window_outputs(input.shape[3], g.kernel_w, g.stride_w, g.pad_w, 1);
  require_shape(operation, "output", output, {input.shape[0], input.shape[1], oh, ow});
  if (g.kind == PoolKind::avg || indices.data == nullptr) return;
  require_shape(operation, "indices", indices, output.shape);
  if (indices.dtype == DType::u8 && g.kernel_h * g.kernel_w > 256) {
    refuse(operation, "indices expected dtype int32 for a window of more than 256 elements, got uint8");
  }
}

void require_pool2d_backward(const Pool2dGeometry& geometry, const View& grad_output, const View& indices,
                             const View& grad_input) {
  constexpr std::string_view kName = "pool2d_backward";
  require_pool2d(kName, geometry, grad_input, grad_output, indices);
  if (geometry.kind == PoolKind::max && indices.data == nullptr && grad_output.numel() != 0)
    refuse(kName, "max pooling needs the indices of its forward, got none");
}

void require_conv2d_pool2d(std::string_view operation, const Conv2dGeometry& conv, const Pool2dGeometry& pool,
                           const View& input, const View& weight, const View& bias, const View& output,
                           const View& mask) {
  require_rank(operation, "input", input, 4);
  require_rank(operation, "weight", weight, 4);
  require_geometry(operation, conv, weight);
  const View between = output_of(conv, input, weight);
  require_conv2d(operation, conv, input, weight, input.dtype, between);
  require_vector(operation, "bias", bias, weight.shape[0], parameter_dtype(bias, input));
  if (!can_fuse_pool(pool)) {
    refuse(operation,
           "expected pooling without padding or overlap and at most 8 elements a window; use conv2d "
           "and pool2d");
  }
  require_dtype(operation, "output", output, input.dtype);
  require_shape(
      operation, "output", output,
      {input.shape[0], weight.shape[0], window_outputs(between.shape[2], pool.kernel_h, pool.stride_h, 0, 1),
       window_outputs(between.shape[3], pool.kernel_w, pool.stride_w, 0, 1)});
  if (mask.data == nullptr) return;
  require_shape(operation, "mask", mask, output.shape);
  require_dtype(operation, "mask", mask, DType::u8);
}

void require_conv2d_pool2d_backward(const Conv2dGeometry& conv, const Pool2dGeometry& pool, const View& input,
                                    const View& weight, const View& grad_output, const View& mask,
                                    const View& grad_input, const View& grad_weight, const View& grad_bias) {
  constexpr std::string_view kName = "conv2d_relu_pool2d_backward";
  require_conv2d_pool2d(kName, conv, pool, input, weight, grad_bias, grad_output, mask);
  require_shape(kName, "grad_weight", grad_weight, weight.shape);
  require_dtype(kName, "grad_weight", grad_weight, parameter_dtype(grad_weight, input));
  require_optional(kName, "grad_input", grad_input, input);
  require_writable(kName, "grad_bias", grad_bias);
  if (mask.data == nullptr && grad_output.numel() != 0)
    refuse(kName, "needs the mask of its forward, got none");
}

void require_rows(std::string_view operation, const View& table, const View& index, const View& rows) {
  if (table.rank() == 0) refuse(operation, "expected a table of at least one dimension, got a scalar");
  require_rank(operation, "index", index, 1);
  require_dtype(operation, "index", index, DType::i64);
  Dims expected = table.shape;
  expected[0] = index.shape[0];
  require_shape(operation, "rows", rows, expected);
  require_dtype(operation, "rows", rows, table.dtype);
}

void require_channels(std::string_view operation, const BatchNormChannels& channels, const View& input) {
  require_rank(operation, "input", input, 4);
  const DType dtype = input.dtype == DType::f64 ? DType::f64 : DType::f32;
  const std::pair<std::string_view, const View*> arrays[] = {{"weight", &channels.weight},
                                                             {"bias", &channels.bias},
                                                             {"running_mean", &channels.running_mean},
                                                             {"running_var", &channels.running_var},
                                                             {"mean", &channels.mean},
                                                             {"inv_std", &channels.inv_std}};
  for (const auto& [name, view] : arrays) require_vector(operation, name, *view, input.shape[1], dtype);
}

void require_statistics(std::string_view operation, const BatchNormChannels& channels) {
  const View& mean = channels.mean;
  require_rank(operation, "mean", mean, 1);
  const std::pair<std::string_view, const View*> written[] = {{"mean", &mean},
                                                              {"inv_std", &channels.inv_std},
                                                              {"running_mean", &channels.running_mean},
                                                              {"running_var", &channels.running_var}};
  for (const auto& [name, view] : written) {
    require_vector(operation, name, *view, mean.shape[0], mean.dtype);
    require_writable(operation, name, *view);
  }
}

void require_channel_gradients(std::string_view operation, const View& input, const View& grad_weight,
                               const View& grad_bias) {
  const DType dtype = input.dtype == DType::f64 ? DType::f64 : DType::f32;
  require_vector(operation, "grad_weight", grad_weight, input.shape[1], dtype);
  require_vector(operation, "grad_bias", grad_bias, input.shape[1], dtype);
}

void require_several(std::string_view operation, const View& input) {
  if (input.shape[1] == 0 || input.numel() / input.shape[1] > 1) return;
  refuse(operation, "expected more than one value per channel to normalise, got input shape " +
                        input.shape.to_string() + "; use a larger batch or evaluation mode");
}

void require_totals(std::string_view operation, std::string_view argument, const View& view,
                    std::int64_t parts, std::int64_t channels) {
  const std::int64_t length = 2 * channels + 1;
  require_dtype(operation, argument, view, DType::f64);
  if (view.is_contiguous() && view.numel() == parts * length) return;
  refuse(operation, as_text(argument) + " expected " + std::to_string(parts) + " x " +
                        std::to_string(length) + " dense elements, got shape " + view.shape.to_string());
}

void require_row_norm(std::string_view operation, const View& input, const View& weight, const View& mean,
                      const View& inv_std, const View& other) {
  if (!is_floating(input.dtype)) refuse_dtype(operation, input.dtype);
  require_rank(operation, "input", input, 2);
  require_like(operation, "output", other, input);
  if (!input.is_contiguous() || !other.is_contiguous()) {
    refuse(operation, "expected dense matrices, got strides " + input.strides.to_string() + " and " +
                          other.strides.to_string());
  }
  const DType statistics = input.dtype == DType::f64 ? DType::f64 : DType::f32;
  require_vector(operation, "weight", weight, input.shape[1], input.dtype);
  require_vector(operation, "mean", mean, input.shape[0], statistics);
  require_shape(operation, "inv_std", inv_std, {input.shape[0]});
  require_dtype(operation, "inv_std", inv_std, statistics);
}

std::int64_t require_mask(const MaskNumbers& numbers, double keep, const View& out) {
  require_dtype("dropout_mask", "step", numbers.step, DType::i64);
  require_shape("dropout_mask", "step", numbers.step, {1});
  if (!(keep > 0 && keep <= 1)) {
    refuse("dropout_mask", "keep expected above 0 and at most 1, got " + std::to_string(keep));
  }
  if (numbers.first < 0)
    refuse("dropout_mask", "first expected 0 or more, got " + std::to_string(numbers.first));
  if (!out.is_contiguous())
    refuse("dropout_mask", "out expected dense, got strides " + out.strides.to_string());
  const std::int64_t extent = out.rank() == 0 ? 1 : out.shape[0];
  if (numbers.rows.data == nullptr) return extent;
  require_dtype("dropout_mask", "rows", numbers.rows, DType::i64);
  const std::int64_t rows = numbers.rows.numel();
  if (numbers.rows.rank() == 1 && numbers.rows.is_contiguous() && rows > 0 && extent % rows == 0) return rows;
  refuse("dropout_mask", "rows expected dense [N], N a divisor of " + std::to_string(extent) +
                             ", got shape " + numbers.rows.shape.to_string());
}

void require_slots(std::span<const OptimizerSlot> slots, const SgdStep& step) {
  for (const OptimizerSlot& slot : slots) {
    require_parameter("sgd", slot.param);
    require_slot_array("sgd", "grad", slot.grad, slot.param);
    if (step.momentum != 0) require_slot_array("sgd", "momentum", slot.momentum, slot.param);
  }
}

void require_slots(std::span<const OptimizerSlot> slots, const AdamWStep& /*step*/) {
  for (const OptimizerSlot& slot : slots) {
    require_parameter("adamw", slot.param);
    require_slot_array("adamw", "grad", slot.grad, slot.param);
    require_slot_array("adamw", "momentum", slot.momentum, slot.param);
    require_slot_array("adamw", "variance", slot.variance, slot.param);
  }
}

void require_slots(std::span<const OptimizerSlot> slots, const RmsPropStep& step) {
  for (const OptimizerSlot& slot : slots) {
    require_parameter("rmsprop", slot.param);
    require_slot_array("rmsprop", "grad", slot.grad, slot.param);
    require_slot_array("rmsprop", "variance", slot.variance, slot.param);
    if (step.momentum != 0) require_slot_array("rmsprop", "momentum", slot.momentum, slot.param);
    if (step.centered) require_slot_array("rmsprop", "mean", slot.mean, slot.param);
  }
}

void require_slots(std::span<const OptimizerSlot> slots, const AdagradStep& /*step*/) {
  for (const OptimizerSlot& slot : slots) {
    require_parameter("adagrad", slot.param);
    require_slot_array("adagrad", "grad", slot.grad, slot.param);
    require_slot_array("adagrad", "variance", slot.variance, slot.param);
  }
}

}  // namespace dtrain
