// Checks of arguments: matrix products, convolution and pooling.
#include "runtime/device/checked_kernels.h"
#include "runtime/device/kernel_checks.h"

namespace dtrain::checks {
namespace {

/// Where a convolution's output would lie: its shape, without data.
View output_of(const Conv2dGeometry& g, const View& input, const View& weight) {
  const std::int64_t oh = window_outputs(input.shape[2], weight.shape[2], g.stride_h, g.pad_h, g.dilation_h);
  const std::int64_t ow = window_outputs(input.shape[3], weight.shape[3], g.stride_w, g.pad_w, g.dilation_w);
  return {nullptr, input.dtype, {input.shape[0], weight.shape[0], oh, ow}, {0, 0, 0, 0}};
}

/// A convolution, forward or backward; the weight's dtype differs where it is a gradient.
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

/// A pooling, forward or backward; `indices` may have null data.
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

/// A convolution with ReLU and pooling behind it; `bias` (or its gradient) and `mask` may have null data.
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

void require_bias(std::string_view operation, std::string_view argument, const View& bias,
                  std::int64_t extent, const View& activation) {
  require_vector(operation, argument, bias, extent, parameter_dtype(bias, activation));
}

}  // namespace

void matmul(const View& a, const View& b, const View& bias, Activation activation, bool accumulate,
            const View& out) {
  require_rank("matmul", "a", a, 3);
  require_rank("matmul", "b", b, 3);
  require_dtype("matmul", "b", b, a.dtype);
  require_dtype("matmul", "out", out, parameter_dtype(out, a));
  require_shape("matmul", "b", b, {a.shape[0], a.shape[2], b.shape[2]});
  require_shape("matmul", "out", out, {a.shape[0], a.shape[1], b.shape[2]});
  require_bias("matmul", "bias", bias, b.shape[2], a);
  if (bias.data == nullptr && activation == Activation::none) return;
  if (accumulate) refuse("matmul", "accumulate takes neither bias nor activation");
  if (a.dtype == DType::i64) refuse("matmul", "int64 takes neither bias nor activation");
}

void conv2d(const Conv2dGeometry& geometry, const View& input, const View& weight, const View& bias,
            Activation /*activation*/, const View& output) {
  require_conv2d("conv2d", geometry, input, weight, input.dtype, output);
  require_bias("conv2d", "bias", bias, weight.shape[0], input);
}

void conv2d_backward_input(const Conv2dGeometry& geometry, const View& grad_output, const View& weight,
                           const View& grad_input) {
  require_conv2d("conv2d_backward_input", geometry, grad_input, weight, grad_input.dtype, grad_output);
}

void conv2d_backward_input_add(const Conv2dGeometry& geometry, const View& grad_output, const View& weight,
                               const View& grad_input) {
  require_conv2d("conv2d_backward_input_add", geometry, grad_input, weight, grad_input.dtype, grad_output);
}

void conv2d_backward_weight(const Conv2dGeometry& geometry, const View& input, const View& grad_output,
                            const View& grad_weight, const View& grad_bias) {
  constexpr std::string_view kName = "conv2d_backward_weight";
  require_conv2d(kName, geometry, input, grad_weight, parameter_dtype(grad_weight, input), grad_output);
  require_bias(kName, "grad_bias", grad_bias, grad_weight.shape[0], input);
  require_writable(kName, "grad_bias", grad_bias);
}

void pool2d(const Pool2dGeometry& geometry, const View& input, const View& output, const View& indices) {
  require_pool2d("pool2d", geometry, input, output, indices);
}

void pool2d_backward(const Pool2dGeometry& geometry, const View& grad_output, const View& indices,
                     const View& grad_input) {
  constexpr std::string_view kName = "pool2d_backward";
  require_pool2d(kName, geometry, grad_input, grad_output, indices);
  if (geometry.kind == PoolKind::max && indices.data == nullptr && grad_output.numel() != 0)
    refuse(kName, "max pooling needs the indices of its forward, got none");
}

void pool2d_pick(const Pool2dGeometry& geometry, const View& input, const View& indices, const View& output) {
  if (geometry.kind != PoolKind::max) refuse("pool2d_pick", "expected max pooling, got average");
  require_pool2d("pool2d_pick", geometry, input, output, indices);
  if (indices.data == nullptr && output.numel() != 0)
    refuse("pool2d_pick", "needs the indices of its pool2d, got none");
}

void conv2d_relu_pool2d(const Conv2dGeometry& conv, const Pool2dGeometry& pool, const View& input,
                        const View& weight, const View& bias, const View& output, const View& mask) {
  require_conv2d_pool2d("conv2d_relu_pool2d", conv, pool, input, weight, bias, output, mask);
}

void conv2d_relu_pool2d_backward(const Conv2dGeometry& conv, const Pool2dGeometry& pool, const View& input,
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

}  // namespace dtrain::checks
