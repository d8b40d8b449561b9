#include "runtime/autograd/functions/convolution_gradients.h"

#include <utility>

#include "runtime/autograd/functions/convolution_shape.h"
#include "runtime/autograd/functions/elementwise.h"
#include "runtime/autograd/node.h"
#include "runtime/autograd/ops.h"

namespace dtrain {
namespace {

/// As the kernels take an activation.
Tensor dense(const Tensor& x) { return is_dense(x) ? x : x.contiguous(kChannelsLast); }

/// The elements of x that max pooling chose.
Tensor pool2d_pick(const Tensor& given, const Tensor& indices, const Pool2dGeometry& geometry) {
  const Tensor x = dense(given);
  const MemoryFormat format = x.memory_format();
  Tensor result = Tensor::empty(indices.shape(), x.shared_device(), x.dtype(), format);
  x.device().kernels().pool2d_pick(geometry, x.view(), indices.view(), result.view());
  if (!recording(x)) return result;
  return record("pool2d", std::move(result), {x}, [indices, geometry](const Tensor& grad, GradSink& sink) {
    sink.deliver(0, pool2d_gradient(grad, indices, sink.shape(0), geometry, indices.memory_format()));
  });
}

}  // namespace

Tensor conv2d_input_gradient(const Tensor& given, const Tensor& given_weight, const Dims& shape,
                             const Conv2dGeometry& geometry, MemoryFormat format) {
  const Tensor grad = dense(given), w = given_weight.contiguous();
  Tensor result = Tensor::empty(shape, grad.shared_device(), grad.dtype(), format);
  grad.device().kernels().conv2d_backward_input(geometry, grad.view(), w.view(), result.view());
  if (!recording({grad, w})) return result;
  return record("conv2d backward", std::move(result), {grad, w},
                [geometry, of_output = Saved::input_if(w.requires_grad(), grad),
                 weight = Saved::input_if(grad.requires_grad(), w)](const Tensor& second, GradSink& sink) {
                  if (sink.wants(1)) {
                    sink.deliver(
                        1, conv2d_weight_gradient(second, of_output.get(sink), sink.shape(1), geometry));
                  }
                  if (sink.wants(0)) sink.deliver(0, conv2d(second, weight.get(sink), {}, geometry));
                });
}

Tensor conv2d_weight_gradient(const Tensor& given, const Tensor& given_grad, const Dims& shape,
                              const Conv2dGeometry& geometry) {
  const Tensor x = dense(given), grad = dense(given_grad);
  Tensor result = Tensor::empty(shape, grad.shared_device(), grad.dtype());
  grad.device().kernels().conv2d_backward_weight(geometry, x.view(), grad.view(), result.view(), {});
  if (!recording({x, grad})) return result;
  return record("conv2d backward", std::move(result), {x, grad},
                [geometry, input = Saved::input_if(grad.requires_grad(), x),
                 of_output = Saved::input_if(x.requires_grad(), grad)](const Tensor& second, GradSink& sink) {
                  if (sink.wants(1)) sink.deliver(1, conv2d(input.get(sink), second, {}, geometry));
                  if (!sink.wants(0)) return;
                  sink.deliver(0, conv2d_input_gradient(of_output.get(sink), second, sink.shape(0), geometry,
                                                        kChannelsLast));
                });
}

Tensor pool2d_gradient(const Tensor& given, const Tensor& indices, const Dims& shape,
                       const Pool2dGeometry& geometry, MemoryFormat format) {
  const Tensor grad = given.contiguous(format);
  Tensor result = Tensor::empty(shape, grad.shared_device(), grad.dtype(), format);
  grad.device().kernels().pool2d_backward(geometry, grad.view(), view_or_none(indices), result.view());
  if (!recording(grad)) return result;
  return record("pool2d backward", std::move(result), {grad},
                [indices, geometry](const Tensor& second, GradSink& sink) {
                  sink.deliver(0, indices.defined() ? pool2d_pick(second, indices, geometry)
                                                    : pool2d(second, geometry));
                });
}

}  // namespace dtrain
