// layer_norm and rms_norm, on the kernels that take a row at a time.
#include <string>
#include <utility>

#include "runtime/autograd/autocast.h"
#include "runtime/autograd/functions/elementwise.h"
#include "runtime/autograd/node.h"
#include "runtime/autograd/ops.h"
#include "runtime/autograd/ops/norms.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

void check_norm(std::string_view name, const Tensor& x, const Dims& shape, const Tensor& weight,
                const Tensor& bias) {
  check_floating(name, x);
  bool fits = shape.rank() >= 1 && x.rank() >= shape.rank();
  for (int i = 1; fits && i <= shape.rank(); ++i) {
    fits = x.shape()[x.rank() - i] == shape[shape.rank() - i];
  }
  for (const Tensor* parameter : {&weight, &bias}) {
    if (!parameter->defined()) continue;
    check_same_kind(name, x, *parameter);
    fits = fits && parameter->shape() == shape;
  }
  if (!fits) {
    throw UsageError(std::string(name) + ": expected x […, " + shape.to_string() +
                     "] and weight and bias of that shape, got " + x.describe() + ", " + weight.describe() +
                     " and " + bias.describe());
  }
}

/// What backward keeps.
struct RowNormSaved {
  RowNormRule rule;
  Saved x, weight;
  bool has_weight = false;
  Tensor mean, inv_std;

  Tensor weight_of(const GradSink& sink) const { return has_weight ? weight.get(sink) : Tensor(); }
};

/// With create_graph: the gradients as differentiable operations.
void norm_backward_recorded(const RowNormSaved& saved, const Tensor& grad, GradSink& sink) {
  const Tensor x = saved.x.get(sink), weight = saved.weight_of(sink);
  const Tensor centered = saved.rule.centered ? sub(x, mean(x, {-1}, true)) : x;
  const Tensor scale = rsqrt(add(mean(square(centered), {-1}, true), saved.rule.eps));
  const Tensor normalised = mul(centered, scale);
  if (sink.wants(1)) sink.deliver(1, mul(grad, normalised).sum_to(sink.shape(1)));
  if (sink.wants(2)) sink.deliver(2, grad.sum_to(sink.shape(2)));
  if (!sink.wants(0)) return;
  const Tensor weighted = weight.defined() ? mul(grad, weight) : grad;
  Tensor gradient = sub(weighted, mul(normalised, mean(mul(weighted, normalised), {-1}, true)));
  if (saved.rule.centered) gradient = sub(gradient, mean(weighted, {-1}, true));
  sink.deliver(0, mul(gradient, scale));
}

void norm_backward(const RowNormSaved& saved, const Tensor& given, GradSink& sink) {
  if (grad_enabled()) return norm_backward_recorded(saved, given, sink);
  const Tensor grad = given.contiguous(), x = saved.x.get_if(sink.wants(0) || sink.wants(1), sink),
               weight = saved.weight.get_if(saved.has_weight && sink.wants(0), sink);
  Tensor to[3];
  for (int i = 0; i < 3; ++i) {
    if (sink.wants(i)) to[i] = sink.destination(i, grad.shared_device());
  }
  grad.device().kernels().row_norm_backward(x.view(), view_or_none(weight), view_or_none(saved.mean),
                                            saved.inv_std.view(), grad.view(), view_or_none(to[0]),
                                            view_or_none(to[1]), view_or_none(to[2]));
  // Parameters first: the sooner they are delivered, the sooner they can be sent to other ranks.
  for (const int i : {1, 2, 0}) {
    if (sink.wants(i)) sink.deliver(i, std::move(to[i]));
  }
}

/// The rows of x, whose length is the product of `shape`, normalised; in the shape of x.
Tensor normalised(std::string_view name, const RowNormRule& rule, const Tensor& given, const Dims& shape,
                  const Tensor& weight, const Tensor& bias) {
  const std::int64_t columns = shape.product();
  const Tensor x = given.reshape({columns == 0 ? 0 : given.numel() / columns, columns}).contiguous();
  const Tensor scale = weight.defined() ? weight.reshape({columns}).contiguous() : Tensor();
  const Tensor shift = bias.defined() ? bias.reshape({columns}).contiguous() : Tensor();
  const DType statistics = x.dtype() == DType::f64 ? DType::f64 : DType::f32;
  const Tensor inv_std = Tensor::empty({x.size(0)}, x.shared_device(), statistics);
  const Tensor mean = rule.centered ? Tensor::empty({x.size(0)}, x.shared_device(), statistics) : Tensor();
  Tensor result = Tensor::empty(x.shape(), x.shared_device(), x.dtype());
  x.device().kernels().row_norm(rule, x.view(), view_or_none(scale), view_or_none(shift), view_or_none(mean),
                                inv_std.view(), result.view());
  if (recording({x, scale, shift})) {
    RowNormSaved saved{rule, Saved::input(x), Saved::input_if(scale.defined(), scale), scale.defined(),
                       mean, inv_std};
    result = record(
        name, std::move(result), {x, scale, shift},
        [saved = std::move(saved)](const Tensor& grad, GradSink& sink) { norm_backward(saved, grad, sink); });
  }
  return result.reshape(given.shape());
}

}  // namespace

Tensor layer_norm(const Tensor& given, const Dims& shape, const Tensor& weight, const Tensor& bias,
                  double eps) {
  const Tensor x = autocast_full(given);
  check_norm("layer_norm", x, shape, weight, bias);
  return normalised("layer_norm", {eps, true}, x, shape, weight, bias);
}

Tensor rms_norm(const Tensor& given, const Dims& shape, const Tensor& weight, double eps) {
  const Tensor x = autocast_full(given);
  check_norm("rms_norm", x, shape, weight, {});
  return normalised("rms_norm", {eps, false}, x, shape, weight, {});
}

}  // namespace dtrain
