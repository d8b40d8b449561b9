// matmul and linear. Gradients of weights are written straight into their final place.
#include <utility>

#include "runtime/autograd/autocast.h"
#include "runtime/autograd/functions/elementwise.h"
#include "runtime/autograd/functions/promotion.h"
#include "runtime/autograd/node.h"
#include "runtime/autograd/ops.h"
#include "runtime/base/error.h"
#include "runtime/device/kernel_checks.h"
#include "runtime/tensor/checks.h"
#include "runtime/tensor/shape.h"

namespace dtrain {
namespace {

/// Kernels take matrices whose rows or columns are dense.
Tensor dense_matrix(const Tensor& x) {
  const Dims& shape = x.shape();
  const Dims& strides = x.strides();
  const int last = x.rank() - 1;
  const bool rows = strides[last] == 1 || shape[last] == 1;
  const bool columns = strides[last - 1] == 1 || shape[last - 1] == 1;
  return rows || columns ? x : x.contiguous();
}

/// View of a matrix [R, C] as [1, R, C].
View batch_of_one(const View& matrix) {
  return {matrix.data,
          matrix.dtype,
          {1, matrix.shape[0], matrix.shape[1]},
          {matrix.shape[0] * matrix.shape[1], matrix.strides[0], matrix.strides[1]}};
}

View transposed(const View& matrix) {
  return {
      matrix.data, matrix.dtype, {matrix.shape[1], matrix.shape[0]}, {matrix.strides[1], matrix.strides[0]}};
}

/// [B, M, K] · [B, K, N]
Tensor batched_matmul(const Tensor& a, const Tensor& b) {
  const Tensor left = dense_matrix(a), right = dense_matrix(b);
  Tensor result = Tensor::empty({a.shape()[0], a.shape()[1], b.shape()[2]}, a.shared_device(), a.dtype());
  a.device().kernels().matmul(left.view(), right.view(), {}, Activation::none, false, result.view());
  if (!recording({left, right})) return result;
  return record("matmul", std::move(result), {left, right},
                [first = Saved::input_if(right.requires_grad(), left),
                 second = Saved::input_if(left.requires_grad(), right)](const Tensor& grad, GradSink& sink) {
                  if (sink.wants(1)) {
                    sink.deliver(1, batched_matmul(first.get(sink).transpose(1, 2), grad));
                  }
                  if (sink.wants(0)) {
                    sink.deliver(0, batched_matmul(grad, second.get(sink).transpose(1, 2)));
                  }
                });
}

/// The dimensions before the matrix.
Dims leading(const Dims& shape) { return Dims(std::span(shape.begin(), shape.end() - 2)); }

Dims joined(Dims batch, std::int64_t rows, std::int64_t columns) {
  batch.push_back(rows);
  batch.push_back(columns);
  return batch;
}

[[noreturn]] void refuse_matmul(const Tensor& a, const Tensor& b) {
  throw UsageError("matmul: expected […, M, K] · […, K, N], got " + a.describe() + " and " + b.describe());
}

/// matmul of two tensors of at least two dimensions.
Tensor matmul_matrices(const Tensor& a, const Tensor& b) {
  const std::int64_t rows = a.size(-2), inner = a.size(-1), columns = b.size(-1);
  if (b.rank() == 2) {  // a batch of rows is a taller matrix
    const Tensor tall = a.reshape({1, leading(a.shape()).product() * rows, inner});
    return batched_matmul(tall, b.unsqueeze(0)).reshape(joined(leading(a.shape()), rows, columns));
  }
  const Dims batch = broadcast_shapes(leading(a.shape()), leading(b.shape()), "matmul");
  const auto as_batch = [&batch](const Tensor& x, std::int64_t r, std::int64_t c) {
    return x.expand(joined(batch, r, c)).reshape({batch.product(), r, c});
  };
  return batched_matmul(as_batch(a, rows, inner), as_batch(b, inner, columns))
      .reshape(joined(batch, rows, columns));
}

/// What linear's backward keeps.
struct LinearSaved {
  Saved x, w, y;
  Saved parameter;  ///< w's source, with its history: under autocast w is a copy without one
  bool has_bias;
  Activation activation;
};

/// a [R, K] · b [K, C], whatever autocast says.
Tensor product(const Tensor& a, const Tensor& b) {
  return batched_matmul(a.unsqueeze(0), b.unsqueeze(0)).reshape({a.size(0), b.size(1)});
}

/// With create_graph: the gradients as differentiable operations, those of float32 parameters in float32.
void linear_backward_recorded(const LinearSaved& saved, const Tensor& grad, GradSink& sink) {
  if (sink.wants(1)) {
    const DType dtype = sink.dtype(1);
    sink.deliver(1, product(grad.to(dtype).transpose(0, 1), saved.x.get(sink).to(dtype)));
  }
  if (saved.has_bias && sink.wants(2)) sink.deliver(2, grad.to(sink.dtype(2)).sum_to(sink.shape(2)));
  if (sink.wants(0)) sink.deliver(0, product(grad, saved.parameter.get(sink).to(grad.dtype())));
}

/// dL/dw = gradᵀ · x, written or added straight to where it is to live.
void deliver_weight_grad(const Tensor& grad, const Tensor& x, GradSink& sink) {
  Kernels& kernels = grad.device().kernels();
  const View left = batch_of_one(transposed(grad.view())), right = batch_of_one(x.view());
  if (const auto total = sink.accumulator(1)) {
    kernels.matmul(left, right, {}, Activation::none, true, batch_of_one(total->view()));
    return sink.delivered_in_place(1);
  }
  Tensor target = sink.destination(1, grad.shared_device());
  kernels.matmul(left, right, {}, Activation::none, false, batch_of_one(target.view()));
  sink.deliver(1, std::move(target));
}

void deliver_bias_grad(const Tensor& grad, GradSink& sink) {
  Tensor target = sink.destination(2, grad.shared_device());
  const Tensor exact = grad.to(target.dtype());
  View row = target.view();
  row.shape = {1, row.shape[0]};
  row.strides = {row.shape[1], 1};
  grad.device().kernels().reduce(Reduction::sum, exact.view(), row);
  sink.deliver(2, std::move(target));
}

void linear_backward(const LinearSaved& saved, Tensor grad, GradSink& sink) {
  if (saved.activation == Activation::relu) grad = relu_grad(std::move(grad), saved.y.get(sink));
  if (grad_enabled()) return linear_backward_recorded(saved, grad, sink);
  grad = dense_matrix(grad);
  if (sink.wants(1)) deliver_weight_grad(grad, saved.x.get(sink), sink);
  if (saved.has_bias && sink.wants(2)) deliver_bias_grad(grad, sink);
  if (!sink.wants(0)) return;
  const Tensor w = saved.w.get(sink);
  Tensor grad_x = sink.destination(0, grad.shared_device());
  grad.device().kernels().matmul(batch_of_one(grad.view()), batch_of_one(w.view()), {}, Activation::none,
                                 false, batch_of_one(grad_x.view()));
  sink.deliver(0, std::move(grad_x));
}

void check_linear(const Tensor& x, const Tensor& w, const Tensor& bias) {
  check_floating("linear", x);
  check_same_kind("linear", x, w);
  const bool full_bias = bias.defined() && is_half(x.dtype()) && bias.dtype() == DType::f32;
  if (bias.defined() && !full_bias) check_same_kind("linear", x, bias);
  check_same_device("linear", x, bias);
  const bool fits = w.rank() == 2 && x.rank() >= 1 && x.size(-1) == w.size(1) &&
                    (!bias.defined() || bias.shape() == Dims{w.size(0)});
  if (!fits) {
    throw UsageError("linear: expected x […, K], w [N, K] and bias [N], got " + x.describe() + ", " +
                     w.describe() + " and " + bias.describe());
  }
}

/// linear for x [R, K].
Tensor linear_rows(const Tensor& input, const Tensor& parameter, const Tensor& bias, Activation activation) {
  const Tensor x = dense_matrix(input), weight = dense_matrix(parameter), w = autocast_weight(weight, x);
  Tensor result = Tensor::empty({x.size(0), w.size(0)}, x.shared_device(), x.dtype());
  x.device().kernels().matmul(batch_of_one(x.view()), batch_of_one(transposed(w.view())), view_or_none(bias),
                              activation, false, batch_of_one(result.view()));
  if (!recording({x, weight, bias})) return result;
  LinearSaved saved{Saved::input_if(weight.requires_grad(), x),
                    Saved::input_if(x.requires_grad(), w),
                    activation == Activation::relu ? Saved::output(result) : Saved(),
                    Saved::input_if(x.requires_grad(), weight),
                    bias.defined(),
                    activation};
  return record("linear", std::move(result), {x, weight, bias},
                [saved = std::move(saved)](Tensor grad, GradSink& sink) {
                  linear_backward(saved, std::move(grad), sink);
                });
}

}  // namespace

Tensor matmul(const Tensor& given_a, const Tensor& given_b) {
  const Tensor a = autocast_low(given_a), b = autocast_low(given_b);
  if (a.dtype() == DType::boolean) check_floating("matmul", a);
  check_same_kind("matmul", a, b);
  if (computed_in(a.dtype(), a.device()) != a.dtype())
    return matmul(as_computed(a), as_computed(b)).to(a.dtype());
  if (a.rank() == 0 || b.rank() == 0) refuse_matmul(a, b);
  const Tensor left = a.rank() == 1 ? a.unsqueeze(0) : a, right = b.rank() == 1 ? b.unsqueeze(1) : b;
  if (left.size(-1) != right.size(-2)) refuse_matmul(a, b);
  Tensor result = matmul_matrices(left, right);
  if (b.rank() == 1) result = result.squeeze(-1);
  if (a.rank() == 1) result = result.squeeze(b.rank() == 1 ? -1 : -2);
  return autocast_rounded(result);
}

Tensor linear(const Tensor& given, const Tensor& given_weight, const Tensor& bias, Activation activation) {
  const Tensor x = autocast_low(given), w = autocast_rounded(given_weight);
  check_linear(x, autocast_weight(w, x), bias);
  if (x.rank() == 2) return autocast_rounded(linear_rows(x, w, bias, activation));
  Dims shape = x.shape();
  shape[x.rank() - 1] = w.size(0);
  const std::int64_t rows = Dims(std::span(x.shape().begin(), x.shape().end() - 1)).product();
  return autocast_rounded(linear_rows(x.reshape({rows, w.size(1)}), w, bias, activation)).reshape(shape);
}

}  // namespace dtrain
