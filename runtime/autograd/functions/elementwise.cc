#include "runtime/autograd/functions/elementwise.h"

#include <cmath>
#include <string>
#include <utility>

#include "runtime/autograd/node.h"
#include "runtime/base/error.h"
#include "runtime/tensor/checks.h"
#include "runtime/tensor/shape.h"

namespace dtrain {

void check_same_kind(std::string_view name, const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype()) {
    throw UsageError(std::string(name) + ": expected operands of one dtype, got " + a.describe() + " and " +
                     b.describe() + "; convert one with to()");
  }
  check_same_device(name, a, b);
}

void check_floating(std::string_view name, const Tensor& x) {
  if (is_floating(x.dtype())) return;
  throw UsageError(std::string(name) + ": expected a floating dtype, got " + x.describe() +
                   "; convert it with to()");
}

Tensor empty_like(const Tensor& x) {
  return Tensor::empty(x.shape(), x.shared_device(), x.dtype(), x.memory_format());
}

Tensor apply(UnaryOp op, const Tensor& x) {
  Tensor result = empty_like(x);
  x.device().kernels().unary(op, x.view(), result.view());
  return result;
}

Tensor apply(ParametricOp op, const Tensor& x, double a, double b) {
  Tensor result = empty_like(x);
  x.device().kernels().parametric(op, x.view(), a, b, result.view());
  return result;
}

Tensor apply(std::string_view name, BinaryOp op, const Tensor& a, const Tensor& b) {
  check_same_kind(name, a, b);
  const Dims shape = broadcast_shapes(a.shape(), b.shape(), name);
  const Tensor& model = a.shape() == shape && a.memory_format() == MemoryFormat::channels_last ? a : b;
  const MemoryFormat format = model.shape() == shape ? model.memory_format() : MemoryFormat::contiguous;
  Tensor result = Tensor::empty(shape, a.shared_device(), a.dtype(), format);
  View left = a.view(), right = b.view();
  left.strides = *strides_for_expand(left, shape);
  right.strides = *strides_for_expand(right, shape);
  left.shape = right.shape = shape;
  a.device().kernels().binary(op, left, right, result.view());
  return result;
}

Tensor record_constant(std::string_view name, Tensor result, std::initializer_list<Tensor> inputs) {
  const int count = static_cast<int>(inputs.size());
  return record(name, std::move(result), inputs, [count](const Tensor& grad, GradSink& sink) {
    for (int i = 0; i < count; ++i) {
      if (!sink.wants(i)) continue;
      sink.deliver(i, Tensor::zeros(sink.shape(i), grad.shared_device(), sink.dtype(i)));
    }
  });
}

Tensor relu_grad(Tensor grad, const Tensor& gate) {
  if (grad.is_sole_owner() && grad.strides() == gate.strides()) {
    grad.device().kernels().binary(BinaryOp::relu_grad, grad.view(), gate.view(), grad.view());
    return grad;
  }
  Tensor result = apply("relu backward", BinaryOp::relu_grad, grad, gate);
  if (!recording(grad)) return result;
  return record("relu backward", std::move(result), {grad},
                [gate = Saved::input(gate)](Tensor second, GradSink& sink) {
                  sink.deliver(0, relu_grad(std::move(second), gate.get(sink)));
                });
}

bool differs_from_product(DType dtype, Number number) {
  constexpr int kInverseOfNormal = 126;
  int exponent = 0;
  const bool is_power = std::abs(std::frexp(number.real(), &exponent)) == 0.5;
  return (dtype == DType::f32 || dtype == DType::f64) &&
         !(is_power && std::abs(exponent) <= kInverseOfNormal);
}

}  // namespace dtrain
