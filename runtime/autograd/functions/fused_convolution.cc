// conv2d, relu and pooling as one operation: the convolution's output, the largest activation of a small
// network, is never held.
#include <utility>

#include "runtime/autograd/autocast.h"
#include "runtime/autograd/functions/convolution_shape.h"
#include "runtime/autograd/functions/elementwise.h"
#include "runtime/autograd/node.h"
#include "runtime/autograd/ops.h"

namespace dtrain {
namespace {

constexpr MemoryFormat kChannelsLast = MemoryFormat::channels_last;

struct FusedSaved {
  Saved x, w;
  Tensor mask;
  MemoryFormat x_format;
  bool has_bias;
  Conv2dGeometry conv;
  Pool2dGeometry pool;
};

void fused_backward(const FusedSaved& saved, const Tensor& given, GradSink& sink) {
  const Tensor grad = given.contiguous(kChannelsLast);
  const Tensor x = saved.x.get(sink), w = saved.w.get(sink);
  const auto& device = grad.shared_device();
  const bool bias_wanted = saved.has_bias && sink.wants(2);
  Tensor grad_w = sink.wants(1) ? sink.destination(1, device) : Tensor::empty(w.shape(), device, w.dtype());
  Tensor grad_b = bias_wanted ? sink.destination(2, device) : Tensor();
  Tensor grad_x = sink.wants(0) ? Tensor::empty(x.shape(), device, x.dtype(), saved.x_format) : Tensor();
  device->kernels().conv2d_relu_pool2d_backward(saved.conv, saved.pool, x.view(), w.view(), grad.view(),
                                                saved.mask.view(), grad_x.defined() ? grad_x.view() : View{},
                                                grad_w.view(), bias_wanted ? grad_b.view() : View{});
  if (sink.wants(1)) sink.deliver(1, differentiable_once(sink, grad, std::move(grad_w)));
  if (bias_wanted) sink.deliver(2, differentiable_once(sink, grad, std::move(grad_b)));
  if (grad_x.defined()) sink.deliver(0, differentiable_once(sink, grad, std::move(grad_x)));
}

}  // namespace

Tensor conv2d_relu_pool2d(const Tensor& given, const Tensor& given_weight, const Tensor& given_bias,
                          const Conv2dGeometry& conv, const Pool2dGeometry& pool) {
  // Emulated float16 rounds what goes in and, as the parts would, what comes out of the whole.
  const Tensor input = autocast_rounded(autocast_full(given));
  const Tensor weight = autocast_rounded(given_weight), bias = autocast_rounded(given_bias);
  const Dims shape = pool2d_shape(conv2d_shape(input, weight, bias, conv), pool);
  if (!can_fuse_pool(pool)) return pool2d(conv2d(input, weight, bias, conv, Activation::relu), pool);
  const Tensor x = is_dense(input) ? input : input.contiguous(kChannelsLast), w = weight.contiguous();
  Tensor result = Tensor::empty(shape, x.shared_device(), x.dtype(), kChannelsLast), mask;
  const bool recorded = recording({x, w, bias});
  if (recorded) mask = Tensor::empty(shape, x.shared_device(), DType::u8, kChannelsLast);
  x.device().kernels().conv2d_relu_pool2d(conv, pool, x.view(), w.view(),
                                          bias.defined() ? bias.view() : View{}, result.view(),
                                          recorded ? mask.view() : View{});
  if (!recorded) return autocast_rounded(result);
  FusedSaved saved{Saved::input(x), Saved::input(w), mask, format_of(x), bias.defined(), conv, pool};
  return autocast_rounded(record(
      "conv2d_relu_pool2d", std::move(result), {x, w, bias},
      [saved = std::move(saved)](const Tensor& grad, GradSink& sink) { fused_backward(saved, grad, sink); }));
}

}  // namespace dtrain
