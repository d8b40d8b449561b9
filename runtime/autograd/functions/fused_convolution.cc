// conv2d, relu and pooling as one operation: the convolution's output, the largest activation of a small
// network, is never held.
#include <utility>

#include "runtime/autograd/autocast.h"
#include "runtime/autograd/functions/convolution_gradients.h"
#include "runtime/autograd/functions/convolution_shape.h"
#include "runtime/autograd/functions/elementwise.h"
#include "runtime/autograd/node.h"
#include "runtime/autograd/ops.h"

namespace dtrain {
namespace {

struct FusedSaved {
  Saved x, w, bias;
  Tensor mask;
  MemoryFormat x_format;
  bool has_bias;
  Conv2dGeometry conv;
  Pool2dGeometry pool;
};

/// relu(conv2d(…)) and the places that max pooling of it chose, computed again.
struct Parts {
  Tensor activated, indices;
};

Parts computed_again(const FusedSaved& saved, GradSink& sink) {
  const NoGrad no_grad;
  const Tensor bias = saved.has_bias ? saved.bias.get(sink) : Tensor();
  Parts parts;
  parts.activated = conv2d(saved.x.get(sink), saved.w.get(sink), bias, saved.conv, Activation::relu);
  if (saved.pool.kind == PoolKind::avg) return parts;
  const Dims shape = pool2d_shape(parts.activated, saved.pool);
  const auto& device = parts.activated.shared_device();
  const Tensor pooled = Tensor::empty(shape, device, parts.activated.dtype(), kChannelsLast);
  parts.indices = Tensor::empty(shape, device, DType::u8, kChannelsLast);
  device->kernels().pool2d(saved.pool, parts.activated.view(), pooled.view(), parts.indices.view());
  return parts;
}

/// With create_graph: the gradients of the three operations in turn.
void fused_backward_recorded(const FusedSaved& saved, const Tensor& grad, GradSink& sink) {
  const Parts parts = computed_again(saved, sink);
  const Tensor inner =
      relu_grad(pool2d_gradient(grad, parts.indices, parts.activated.shape(), saved.pool, kChannelsLast),
                parts.activated);
  if (sink.wants(1)) {
    sink.deliver(1, conv2d_weight_gradient(saved.x.get(sink), inner, sink.shape(1), saved.conv));
  }
  if (saved.has_bias && sink.wants(2)) sink.deliver(2, sum(inner, {0, 2, 3}));
  if (!sink.wants(0)) return;
  sink.deliver(0, conv2d_input_gradient(inner, saved.w.get(sink), sink.shape(0), saved.conv, saved.x_format));
}

void fused_backward(const FusedSaved& saved, const Tensor& given, GradSink& sink) {
  if (grad_enabled()) return fused_backward_recorded(saved, given, sink);
  const Tensor grad = given.contiguous(kChannelsLast);
  const Tensor x = saved.x.get_if(sink.wants(1), sink), w = saved.w.get_if(sink.wants(0), sink);
  const auto& device = grad.shared_device();
  const bool bias_wanted = saved.has_bias && sink.wants(2);
  Tensor grad_w = sink.wants(1) ? sink.destination(1, device) : Tensor::empty(w.shape(), device, w.dtype());
  Tensor grad_b = bias_wanted ? sink.destination(2, device) : Tensor();
  Tensor grad_x = sink.wants(0) ? Tensor::empty(x.shape(), device, x.dtype(), saved.x_format) : Tensor();
  device->kernels().conv2d_relu_pool2d_backward(saved.conv, saved.pool, x.view(), w.view(), grad.view(),
                                                saved.mask.view(), view_or_none(grad_x), grad_w.view(),
                                                bias_wanted ? grad_b.view() : View{});
  if (sink.wants(1)) sink.deliver(1, std::move(grad_w));
  if (bias_wanted) sink.deliver(2, std::move(grad_b));
  if (grad_x.defined()) sink.deliver(0, std::move(grad_x));
}

}  // namespace

Tensor conv2d_relu_pool2d(const Tensor& given, const Tensor& given_weight, const Tensor& given_bias,
                          const Conv2dGeometry& conv, const Pool2dGeometry& pool) {
  // Emulated float16 rounds what goes in and, as the parts would, what comes out of the whole.
  const Tensor input = autocast_rounded(autocast_full(given));
  const Tensor weight = autocast_rounded(given_weight), bias = autocast_rounded(given_bias);
  const Dims shape = pool2d_shape(conv2d_shape(input, weight, bias, conv), pool);
  if (!can_fuse_pool(pool) || input.size(1) == 0) {
    return pool2d(conv2d(input, weight, bias, conv, Activation::relu), pool);
  }
  const Tensor x = is_dense(input) ? input : input.contiguous(kChannelsLast), w = weight.contiguous();
  Tensor result = Tensor::empty(shape, x.shared_device(), x.dtype(), kChannelsLast), mask;
  const bool recorded = recording({x, w, bias});
  if (recorded) mask = Tensor::empty(shape, x.shared_device(), DType::u8, kChannelsLast);
  x.device().kernels().conv2d_relu_pool2d(conv, pool, x.view(), w.view(), view_or_none(bias), result.view(),
                                          recorded ? mask.view() : View{});
  if (!recorded) return autocast_rounded(result);
  FusedSaved saved{Saved::input(x),
                   Saved::input(w),
                   bias.defined() ? Saved::input(bias) : Saved(),
                   mask,
                   x.memory_format(),
                   bias.defined(),
                   conv,
                   pool};
  return autocast_rounded(record(
      "conv2d_relu_pool2d", std::move(result), {x, w, bias},
      [saved = std::move(saved)](const Tensor& grad, GradSink& sink) { fused_backward(saved, grad, sink); }));
}

}  // namespace dtrain
