// conv2d and pooling. Activations stay channels-last from one to the next; gradients of weights are written
// straight into their final place.
#include <algorithm>
#include <string>
#include <utility>

#include "runtime/autograd/autocast.h"
#include "runtime/autograd/functions/convolution_gradients.h"
#include "runtime/autograd/functions/convolution_shape.h"
#include "runtime/autograd/functions/elementwise.h"
#include "runtime/autograd/node.h"
#include "runtime/autograd/ops.h"
#include "runtime/base/error.h"
#include "runtime/device/kernel_checks.h"
#include "runtime/tensor/checks.h"

namespace dtrain {
namespace {

constexpr std::int64_t kMostU8Indices = 256;

/// `grad` in the memory format of the result it belongs to.
Tensor as_format(const Tensor& grad, MemoryFormat format) { return grad.contiguous(format); }

/// What pooling reads under autocast: float32, but for GPUs, which add up in full precision whatever they
/// read.
Tensor autocast_pooled(const Tensor& x) {
  return x.defined() && x.device().type() == DeviceType::cuda ? x : autocast_full(x);
}

struct ConvSaved {
  Saved x, w, y;
  Saved parameter;  ///< w's source, with its history: under autocast w is a copy without one
  MemoryFormat x_format;
  bool has_bias;
  bool full_bias;  ///< float32 beside activations of 16 bits
  Conv2dGeometry geometry;
  Activation activation;
};

/// The gradient of a bias whose channels' gradients add up to nothing: batch norm takes the bias away again.
void deliver_no_bias(const Tensor& grad, GradSink& sink) {
  const Tensor grad_b = sink.destination(2, grad.shared_device());
  grad.device().kernels().fill(grad_b.view(), 0.0);
  sink.deliver(2, grad_b);
}

/// Gradients of weight and bias, which one kernel computes together.
void deliver_conv_parameters(const ConvSaved& saved, const Tensor& grad, GradSink& sink) {
  bool bias_wanted = saved.has_bias && sink.wants(2);
  // Where memory decides, what is known is not read once more.
  if (bias_wanted && sink.is_zero_mean() && saved.activation == Activation::none &&
      grad.device().type() == DeviceType::cuda) {
    deliver_no_bias(grad, sink);
    bias_wanted = false;
  }
  if (!sink.wants(1)) {
    if (bias_wanted) {
      const Tensor exact = saved.full_bias ? grad.to(DType::f32) : grad;
      sink.deliver(2, exact.sum_to({1, grad.size(1), 1, 1}).reshape({grad.size(1)}));
    }
    return;
  }
  Tensor grad_w = sink.destination(1, grad.shared_device());
  Tensor grad_b = bias_wanted ? sink.destination(2, grad.shared_device()) : Tensor();
  grad.device().kernels().conv2d_backward_weight(saved.geometry, saved.x.get(sink).view(), grad.view(),
                                                 grad_w.view(), bias_wanted ? grad_b.view() : View{});
  sink.deliver(1, std::move(grad_w));
  if (bias_wanted) sink.deliver(2, std::move(grad_b));
}

/// With create_graph: the gradients as differentiable operations, those of float32 parameters in float32.
void conv_backward_recorded(const ConvSaved& saved, const Tensor& grad, GradSink& sink) {
  if (sink.wants(1)) {
    const DType dtype = sink.dtype(1);
    sink.deliver(1, conv2d_weight_gradient(saved.x.get(sink).to(dtype), grad.to(dtype), sink.shape(1),
                                           saved.geometry));
  }
  if (saved.has_bias && sink.wants(2)) sink.deliver(2, sum(grad.to(sink.dtype(2)), {0, 2, 3}));
  if (!sink.wants(0)) return;
  sink.deliver(0, conv2d_input_gradient(grad, saved.parameter.get(sink).to(grad.dtype()), sink.shape(0),
                                        saved.geometry, saved.x_format));
}

void conv_backward(const ConvSaved& saved, Tensor grad, GradSink& sink) {
  grad = as_format(grad, kChannelsLast);
  if (saved.activation == Activation::relu) grad = relu_grad(std::move(grad), saved.y.get(sink));
  if (grad_enabled()) return conv_backward_recorded(saved, grad, sink);
  deliver_conv_parameters(saved, grad, sink);
  if (!sink.wants(0)) return;
  const Tensor w = saved.w.get(sink);
  Kernels& kernels = grad.device().kernels();
  // Where memory decides, what came another way (a shortcut) is not read and written again to be added.
  const auto total = grad.device().type() == DeviceType::cuda ? sink.any_accumulator(0) : std::nullopt;
  if (total && total->is_contiguous(kChannelsLast) && total->dtype() == grad.dtype()) {
    kernels.conv2d_backward_input_add(saved.geometry, grad.view(), w.view(), total->view());
    total->mark_modified();
    return sink.delivered_in_place(0);
  }
  Tensor grad_x = Tensor::empty(sink.shape(0), grad.shared_device(), grad.dtype(), saved.x_format);
  kernels.conv2d_backward_input(saved.geometry, grad.view(), w.view(), grad_x.view());
  sink.deliver(0, std::move(grad_x));
}

/// The operands as the kernel takes them, and memory for what it writes.
struct ConvolutionCall {
  Tensor x;
  Tensor parameter;  ///< w's source, with its history: under autocast w is a copy without one
  Tensor w, bias, result;
  Conv2dGeometry geometry;
  Activation activation = Activation::none;

  View bias_view() const { return view_or_none(bias); }
};

/// Throws UsageError as conv2d.
ConvolutionCall prepare_conv2d(const Tensor& input, const Tensor& weight, const Tensor& bias,
                               const Conv2dGeometry& geometry, Activation activation) {
  const Tensor low = autocast_low(input);
  ConvolutionCall call;
  call.parameter = autocast_rounded(weight).contiguous();
  call.w = autocast_weight(call.parameter, low);
  call.bias = bias;
  call.geometry = geometry;
  call.activation = activation;
  const Dims shape = conv2d_shape(low, call.w, bias, geometry);
  call.x = is_dense(low) ? low : low.contiguous(kChannelsLast);
  call.result = Tensor::empty(shape, call.x.shared_device(), call.x.dtype(), kChannelsLast);
  return call;
}

/// The result with its history, once the kernel has been called.
Tensor record_conv2d(ConvolutionCall call) {
  auto& [x, parameter, w, bias, result, geometry, activation] = call;
  if (!recording({x, parameter, bias})) return std::move(result);
  ConvSaved saved{Saved::input_if(parameter.requires_grad(), x),
                  Saved::input_if(x.requires_grad(), w),
                  activation == Activation::relu ? Saved::output(result) : Saved(),
                  Saved::input_if(x.requires_grad(), parameter),
                  x.memory_format(),
                  bias.defined(),
                  bias.defined() && bias.dtype() == DType::f32,
                  geometry,
                  activation};
  return record("conv2d", std::move(result), {x, parameter, bias},
                [saved = std::move(saved)](Tensor grad, GradSink& sink) {
                  conv_backward(saved, std::move(grad), sink);
                });
}

}  // namespace

Tensor conv2d(const Tensor& input, const Tensor& weight, const Tensor& bias, const Conv2dGeometry& geometry,
              Activation activation) {
  ConvolutionCall call = prepare_conv2d(input, weight, bias, geometry, activation);
  if (call.x.size(1) == 0) return record_constant("conv2d", call.result, {call.x, call.parameter, bias});
  call.x.device().kernels().conv2d(geometry, call.x.view(), call.w.view(), call.bias_view(), activation,
                                   call.result.view());
  return autocast_rounded(record_conv2d(std::move(call)));
}

Tensor pool2d(const Tensor& given, const Pool2dGeometry& g) {
  const Tensor input = autocast_pooled(given);
  if (g.kind == PoolKind::max && input.dtype() != given.dtype()) return pool2d(input, g).to(given.dtype());
  const Dims shape = pool2d_shape(input, g);
  const Tensor x = is_dense(input) ? input : input.contiguous(kChannelsLast);
  const MemoryFormat format = x.memory_format();
  Tensor result = Tensor::empty(shape, x.shared_device(), x.dtype(), format), indices;
  const bool recorded = recording(x);
  if (recorded && g.kind == PoolKind::max) {
    const DType dtype = g.kernel_h * g.kernel_w <= kMostU8Indices ? DType::u8 : DType::i32;
    indices = Tensor::empty(shape, x.shared_device(), dtype, format);
  }
  x.device().kernels().pool2d(g, x.view(), result.view(), view_or_none(indices));
  if (!recorded) return result;
  return record("pool2d", std::move(result), {x}, [g, indices, format](const Tensor& grad, GradSink& sink) {
    sink.deliver(0, pool2d_gradient(grad, indices, sink.shape(0), g, format));
  });
}

Tensor max_pool2d(const Tensor& x, std::int64_t kernel) {
  return pool2d(x, {PoolKind::max, kernel, kernel, kernel, kernel, 0, 0});
}

Tensor avg_pool2d(const Tensor& x, std::int64_t kernel) {
  return pool2d(x, {PoolKind::avg, kernel, kernel, kernel, kernel, 0, 0});
}

namespace {

/// The windows that cut `in` places into `out` parts, which overlap where that does not divide. Each is
/// filled up to the longest with places of its own that do not count.
struct UnevenWindows {
  UnevenWindows(std::int64_t in, std::int64_t out, const Tensor& like) {
    check_extents("adaptive_avg_pool2d: outputs and extent", {out, in});
    const auto begin_of = [=](std::int64_t i) { return i * in / out; };
    auto sizes = host_values<float>(out);
    for (std::int64_t i = 0; i < out; ++i) {
      const std::int64_t size = ((i + 1) * in + out - 1) / out - begin_of(i);
      sizes[static_cast<std::size_t>(i)] = static_cast<float>(size);
      longest = std::max(longest, size);
    }
    auto from = host_values<std::int64_t>(out * longest);
    auto counts = host_values<float>(out * longest);
    for (std::int64_t at = 0; at < out * longest; ++at) {
      const std::int64_t begin = begin_of(at / longest), k = at % longest;
      const auto size = static_cast<std::int64_t>(sizes[static_cast<std::size_t>(at / longest)]);
      from[static_cast<std::size_t>(at)] = begin + std::min(k, size - 1);
      counts[static_cast<std::size_t>(at)] = k < size ? 1.0F : 0.0F;
    }
    const auto& device = like.shared_device();
    places = Tensor::from_data(from, {out * longest}, device);
    inside = Tensor::from_data(counts, {out * longest}, device).to(like.dtype());
    lengths = Tensor::from_data(sizes, {out}, device).to(like.dtype());
  }
  std::int64_t longest = 0;
  Tensor places;   ///< i64 [out · longest]: where in the input
  Tensor inside;   ///< [out · longest]: 1 for what counts
  Tensor lengths;  ///< [out]: how many do
};

/// Averages over windows that differ in size: gathered, cleared of what does not count (chosen, for 0 · ∞ is
/// not 0), and added up.
Tensor average_windows(const Tensor& x, std::int64_t height, std::int64_t width) {
  const UnevenWindows rows(x.size(2), height, x), columns(x.size(3), width, x);
  const Tensor gathered = x.index_select(2, rows.places).index_select(3, columns.places);
  const Tensor inside = mul(rows.inside.unsqueeze(1), columns.inside);
  const Tensor counted = where(inside, gathered, Tensor::zeros({}, x.shared_device(), x.dtype()));
  const Tensor sums =
      sum(counted.reshape({x.size(0), x.size(1), height, rows.longest, width, columns.longest}), {3, 5});
  return div(sums, mul(rows.lengths.unsqueeze(1), columns.lengths));
}

}  // namespace

Tensor adaptive_avg_pool2d(const Tensor& given, std::int64_t height, std::int64_t width) {
  const Tensor x = autocast_pooled(given);
  check_floating("adaptive_avg_pool2d", x);
  if (x.rank() != 4 || height < 1 || width < 1 || x.size(2) == 0 || x.size(3) == 0) {
    throw UsageError("adaptive_avg_pool2d: expected x [N, C, H, W] with images that are not empty and an " +
                     std::string("output of at least 1 x 1, got ") + x.describe() + " and " +
                     std::to_string(height) + " x " + std::to_string(width));
  }
  if (x.size(2) % height == 0 && x.size(3) % width == 0) {
    const std::int64_t kh = x.size(2) / height, kw = x.size(3) / width;
    return pool2d(x, {PoolKind::avg, kh, kw, kh, kw, 0, 0});
  }
  // Sums and window sizes of more than 256 need more digits than bf16 has, sums more range than f16.
  return is_half(x.dtype()) ? average_windows(x.to(DType::f32), height, width).to(x.dtype())
                            : average_windows(x, height, width);
}

}  // namespace dtrain
