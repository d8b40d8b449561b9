// Plans of oneDNN's primitives for arrays as the caller has them: descriptors, what is reordered, what is in
// the way of the library's defects.
#include "runtime/device/cpu/dense/onednn_plans.h"

#include <algorithm>
#include <string_view>

#include "runtime/device/cpu/dense/onednn_compat.h"

namespace dtrain::cpu::onednn {
namespace {

using dnnl::memory;
using Direction = Plan::Direction;

memory::data_type type_of(DType dtype) {
  return dtype == DType::bf16 ? memory::data_type::bf16 : memory::data_type::f32;
}

memory::desc strided(const View& view) {
  memory::dims shape(view.shape.begin(), view.shape.end());
  memory::dims strides(view.strides.begin(), view.strides.end());
  return {shape, type_of(view.dtype), strides};
}

memory::desc channels_last(const View& view) {
  return {memory::dims(view.shape.begin(), view.shape.end()), type_of(view.dtype), memory::format_tag::nhwc};
}

/// The caller's layout of an activation. Extents of 1 must not make a channels-last array look like another.
memory::desc activation_desc(const View& view) {
  return view.is_channels_last() ? channels_last(view) : strided(view);
}

/// A weight as [G, O/G, C/G, KH, KW] where there are groups.
View grouped(const View& weight, std::int64_t groups) {
  if (groups == 1) return weight;
  View view = weight;
  const std::int64_t outputs = weight.shape[0] / groups;
  view.shape = {groups, outputs, weight.shape[1], weight.shape[2], weight.shape[3]};
  view.strides = {weight.strides[0] * outputs, weight.strides[0], weight.strides[1], weight.strides[2],
                  weight.strides[3]};
  return view;
}

memory::desc any_layout(const View& view) {
  return {memory::dims(view.shape.begin(), view.shape.end()), type_of(view.dtype), memory::format_tag::any};
}

/// Primitives take a bias to be dense whatever strides its descriptor has: `bias` has to be.
memory::desc bias_desc(const View& bias) {
  if (bias.data == nullptr) return {};
  return {{bias.shape[0]}, type_of(bias.dtype), memory::format_tag::x};
}

/// Whether each element of the kernel meets an input somewhere along one dimension; in small images the
/// outermost ones may lie in the padding at every position.
bool kernel_meets_input(std::int64_t in, std::int64_t kernel, std::int64_t outputs, std::int64_t stride,
                        std::int64_t pad, std::int64_t dilation) {
  for (std::int64_t k = 0; k < kernel; ++k) {
    const std::int64_t first = k * dilation - pad;
    const std::int64_t position = first >= 0 ? first : first + (-first + stride - 1) / stride * stride;
    if (position >= in || position > first + (outputs - 1) * stride) return false;
  }
  return true;
}

bool kernel_meets_input(const Conv2dGeometry& g, const View& input, const View& weight, const View& output) {
  return kernel_meets_input(input.shape[2], weight.shape[2], output.shape[2], g.stride_h, g.pad_h,
                            g.dilation_h) &&
         kernel_meets_input(input.shape[3], weight.shape[3], output.shape[3], g.stride_w, g.pad_w,
                            g.dilation_w);
}

dnnl::primitive_attr attributes(bool accumulate) {
  dnnl::post_ops ops;
  if (accumulate) ops.append_sum(1.0F);
  dnnl::primitive_attr attr;
  attr.set_post_ops(ops);
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

ConvArguments conv_arguments(const Conv2dGeometry& g, const View& input, const View& weight, const View& bias,
                             const View& output) {
  ConvArguments a;
  a.src = channels_last(input);
  a.weights = any_layout(grouped(weight, g.groups));
  a.bias = bias_desc(bias);
  a.dst = channels_last(output);
  a.strides = {g.stride_h, g.stride_w};
  a.dilates = {g.dilation_h - 1, g.dilation_w - 1};
  a.pad_left = a.pad_right = {g.pad_h, g.pad_w};
  return a;
}

/// A matmul operand, with nested strides, as oneDNN takes it: batch extent 1 for a broadcast, no strides of
/// 0, one of the last two strides 1. `dense` is what it has to be copied to where it is not like that.
struct Operand {
  memory::desc user, wanted;
};

Operand matmul_operand(View view) {
  if (view.shape[0] != 1 && view.strides[0] == 0) view.shape[0] = 1;
  const std::int64_t rows = view.shape[1], columns = view.shape[2];
  if (rows == 1) view.strides[1] = columns == 1 ? 1 : std::max<std::int64_t>(columns * view.strides[2], 1);
  if (columns == 1) view.strides[2] = view.strides[1] == 1 && rows != 1 ? rows : 1;
  if (view.shape[0] == 1) view.strides[0] = std::max(rows * view.strides[1], columns * view.strides[2]);
  const bool row_major = view.strides[2] == 1 && view.strides[1] >= columns;
  const bool column_major = view.strides[1] == 1 && view.strides[2] >= rows;
  View dense = view;
  if (!row_major && !column_major) dense.strides = contiguous_strides(dense.shape);
  return {strided(view), strided(dense)};
}

}  // namespace

std::unique_ptr<Plan> forward_plan(const dnnl::engine& engine, const Conv2dGeometry& g, const View& input,
                                   const View& weight, const View& bias, const View& output) {
  const ConvArguments a = conv_arguments(g, input, weight, bias, output);
  const auto desc = conv_forward(engine, a, attributes(false));
  auto plan = std::make_unique<Plan>(engine);
  plan->set_primitive(dnnl::convolution_forward(desc));
  plan->add(DNNL_ARG_SRC, Direction::in, activation_desc(input), desc.src_desc());
  plan->add(DNNL_ARG_WEIGHTS, Direction::in, strided(grouped(weight, g.groups)), desc.weights_desc());
  if (bias.data != nullptr) plan->add(DNNL_ARG_BIAS, Direction::in, a.bias, desc.bias_desc());
  plan->add(DNNL_ARG_DST, Direction::out, activation_desc(output), desc.dst_desc());
  plan->add_scratchpad(desc.scratchpad_desc());
  return plan;
}

std::unique_ptr<Plan> backward_input_plan(const dnnl::engine& engine, const Conv2dGeometry& g,
                                          const View& grad_output, const View& weight,
                                          const View& grad_input) {
  const ConvArguments a = conv_arguments(g, grad_input, weight, View{}, grad_output);
  const auto attr = attributes(false);
  const auto desc = conv_backward_data(engine, a, attr, conv_forward(engine, a, attr));
  auto plan = std::make_unique<Plan>(engine);
  plan->set_primitive(dnnl::convolution_backward_data(desc));
  plan->add(DNNL_ARG_DIFF_DST, Direction::in, activation_desc(grad_output), desc.diff_dst_desc());
  plan->add(DNNL_ARG_WEIGHTS, Direction::in, strided(grouped(weight, g.groups)), desc.weights_desc());
  plan->add(DNNL_ARG_DIFF_SRC, Direction::out, activation_desc(grad_input), desc.diff_src_desc());
  plan->add_scratchpad(desc.scratchpad_desc());
  return plan;
}

std::unique_ptr<Plan> backward_weight_plan(const dnnl::engine& engine, const Conv2dGeometry& g,
                                           const View& input, const View& grad_output,
                                           const View& grad_weight, const View& grad_bias) {
  const ConvArguments a = conv_arguments(g, input, grad_weight, grad_bias, grad_output);
  View like_input = grad_weight;  // the forward pass that this belongs to has no f32 weights beside bf16
  like_input.dtype = input.dtype;
  const ConvArguments hint = conv_arguments(g, input, like_input, grad_bias, grad_output);
  const auto attr = attributes(false);
  const auto desc = conv_backward_weights(engine, a, attr, conv_forward(engine, hint, attr));
  auto plan = std::make_unique<Plan>(engine);
  plan->set_primitive(dnnl::convolution_backward_weights(desc));
  plan->add(DNNL_ARG_SRC, Direction::in, activation_desc(input), desc.src_desc());
  plan->add(DNNL_ARG_DIFF_DST, Direction::in, activation_desc(grad_output), desc.diff_dst_desc());
  plan->add(DNNL_ARG_DIFF_WEIGHTS, Direction::out, strided(grouped(grad_weight, g.groups)),
            desc.diff_weights_desc());
  if (grad_bias.data != nullptr) {
    plan->add(DNNL_ARG_DIFF_BIAS, Direction::out, a.bias, desc.diff_bias_desc());
  }
  plan->add_scratchpad(desc.scratchpad_desc());
  // oneDNN 2.6 leaves what meets no input as it finds it, in bf16 and with a stride.
  if (input.dtype == DType::bf16 && !kernel_meets_input(g, input, grad_weight, grad_output))
    plan->clear_first();
  return plan;
}

std::unique_ptr<Plan> matmul_plan(const dnnl::engine& engine, const View& a, const View& b, const View& bias,
                                  bool accumulate, const View& out) {
  const Operand src = matmul_operand(a), weights = matmul_operand(b), dst = matmul_operand(out);
  memory::desc bias_row;
  if (bias.data != nullptr) {
    const std::int64_t columns = bias.shape[0];
    bias_row = {{1, 1, columns}, type_of(bias.dtype), memory::dims{columns, columns, 1}};
  }
  const auto desc = matmul(engine, src.wanted, weights.wanted, bias_row, dst.wanted, attributes(accumulate));
  auto plan = std::make_unique<Plan>(engine);
  plan->set_primitive(dnnl::matmul(desc));
  // Products of blocks in registers; the other kind ("gemm") adds up blocks of terms that hang on the shape.
  if (std::string_view(desc.impl_info_str()).starts_with("brg")) plan->add_in_one_chain();
  plan->add(DNNL_ARG_SRC, Direction::in, src.user, src.wanted);
  plan->add(DNNL_ARG_WEIGHTS, Direction::in, weights.user, weights.wanted);
  if (bias.data != nullptr) plan->add(DNNL_ARG_BIAS, Direction::in, bias_row, bias_row);
  plan->add(DNNL_ARG_DST, Direction::out, dst.user, dst.wanted);
  plan->add_scratchpad(desc.scratchpad_desc());
  return plan;
}

}  // namespace dtrain::cpu::onednn
