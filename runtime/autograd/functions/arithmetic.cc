// Element-wise operations of two tensors, or of a tensor and a number.
#include <optional>
#include <string>
#include <utility>

#include "runtime/autograd/autocast.h"
#include "runtime/autograd/functions/elementwise.h"
#include "runtime/autograd/functions/promotion.h"
#include "runtime/autograd/node.h"
#include "runtime/autograd/ops.h"
#include "runtime/base/error.h"
#include "runtime/tensor/shape.h"

namespace dtrain {
namespace {

Tensor scalar_like(const Tensor& x, double value) {
  return Tensor::full({}, value, x.shared_device(), x.dtype());
}

/// What integers become beside a fraction or in a quotient: torch's default dtype.
Tensor as_f32(const Tensor& x) { return x.to(DType::f32); }

/// `op` of operands that have no kernels as they are, in dtypes that have; the result is of the dtype that
/// PyTorch gives. Nothing where there are kernels, and for two different floating dtypes, which are refused.
template <class Op>
std::optional<Tensor> promoted(const Tensor& a, const Tensor& b, const Op& op) {
  const std::optional<DType> type = result_type(a, b);
  if (!type) return std::nullopt;
  const DType wide = computed_in(*type, a.device());
  if (a.dtype() == wide && b.dtype() == wide) return std::nullopt;
  return op(a.to(wide), b.to(wide)).to(*type);
}

/// A tensor of float16 that has no kernels on its device.
bool is_widened_half(const Tensor& x) {
  return x.dtype() == DType::f16 && computed_in(DType::f16, x.device()) != DType::f16;
}

/// `op` of integers and a whole number, in x's dtype, of truth values in int64. In int64, which every other
/// converts to and back from with the same bits.
Tensor among_integers(std::string_view name, BinaryOp op, const Tensor& x, Number number) {
  const Tensor other = Tensor::from_data({number.whole()}, {}, x.shared_device());
  return apply(name, op, x.to(DType::i64), other).to(x.dtype() == DType::boolean ? DType::i64 : x.dtype());
}

bool stays_whole(const Tensor& x, Number number) { return !is_floating(x.dtype()) && number.is_whole(); }

Tensor extreme(std::string_view name, BinaryOp op, const Tensor& a, const Tensor& b) {
  if (autocast_mixes(a, b)) return extreme(name, op, autocast_full(a), autocast_full(b));
  const auto same = [&](const Tensor& x, const Tensor& z) { return extreme(name, op, x, z); };
  if (auto result = promoted(a, b, same)) return *std::move(result);
  Tensor result = apply(name, op, a, b);
  if (!recording({a, b})) return result;
  const BinaryOp loses = op == BinaryOp::max ? BinaryOp::less : BinaryOp::greater;
  return record(
      name, std::move(result), {a, b},
      [loses, name, left = Saved::input(a), right = Saved::input(b)](const Tensor& grad, GradSink& sink) {
        const Tensor x = left.get(sink), y = right.get(sink);
        // Chosen, not multiplied: the gradient may be infinite where it does not count. NaN loses nowhere.
        const Tensor to_winner = where(apply(name, BinaryOp::equal, x, y), mul(grad, 0.5), grad);
        const Tensor nothing = scalar_like(grad, 0.0);
        const auto share = [&](const Tensor& one, const Tensor& other) {
          return where(apply(name, loses, one, other), nothing, to_winner);
        };
        if (sink.wants(0)) sink.deliver(0, share(x, y).sum_to(sink.shape(0)));
        if (sink.wants(1)) sink.deliver(1, share(y, x).sum_to(sink.shape(1)));
      });
}

}  // namespace

Tensor add(const Tensor& a, const Tensor& b) {
  if (autocast_mixes(a, b)) return add(autocast_full(a), autocast_full(b));
  if (auto result = promoted(a, b, [](const Tensor& x, const Tensor& z) { return add(x, z); }))
    return *std::move(result);
  Tensor result = apply("add", BinaryOp::add, a, b);
  if (!recording({a, b})) return result;
  return record("add", std::move(result), {a, b}, [](Tensor grad, GradSink& sink) {
    if (sink.wants(0)) sink.deliver(0, grad.sum_to(sink.shape(0)));
    if (sink.wants(1)) sink.deliver(1, grad.sum_to(sink.shape(1)));
  });
}

Tensor sub(const Tensor& a, const Tensor& b) {
  if (autocast_mixes(a, b)) return sub(autocast_full(a), autocast_full(b));
  if (a.dtype() == DType::boolean && b.dtype() == DType::boolean)
    throw UsageError("sub: expected numbers, got truth values; a != b tells where they differ");
  if (auto result = promoted(a, b, [](const Tensor& x, const Tensor& z) { return sub(x, z); }))
    return *std::move(result);
  Tensor result = apply("sub", BinaryOp::sub, a, b);
  if (!recording({a, b})) return result;
  return record("sub", std::move(result), {a, b}, [](const Tensor& grad, GradSink& sink) {
    if (sink.wants(0)) sink.deliver(0, grad.sum_to(sink.shape(0)));
    if (sink.wants(1)) sink.deliver(1, neg(grad.sum_to(sink.shape(1))));
  });
}

Tensor mul(const Tensor& a, const Tensor& b) {
  if (autocast_mixes(a, b)) return mul(autocast_full(a), autocast_full(b));
  if (auto result = promoted(a, b, [](const Tensor& x, const Tensor& z) { return mul(x, z); }))
    return *std::move(result);
  Tensor result = apply("mul", BinaryOp::mul, a, b);
  if (!recording({a, b})) return result;
  return record("mul", std::move(result), {a, b},
                [left = Saved::input_if(b.requires_grad(), a), right = Saved::input_if(a.requires_grad(), b)](
                    const Tensor& grad, GradSink& sink) {
                  if (sink.wants(0)) sink.deliver(0, mul(grad, right.get(sink)).sum_to(sink.shape(0)));
                  if (sink.wants(1)) sink.deliver(1, mul(grad, left.get(sink)).sum_to(sink.shape(1)));
                });
}

Tensor div(const Tensor& a, const Tensor& b) {
  if (!is_floating(a.dtype()) && !is_floating(b.dtype())) return div(as_f32(a), as_f32(b));
  if (autocast_mixes(a, b)) return div(autocast_full(a), autocast_full(b));
  if (auto result = promoted(a, b, [](const Tensor& x, const Tensor& z) { return div(x, z); }))
    return *std::move(result);
  Tensor result = apply("div", BinaryOp::div, a, b);
  if (!recording({a, b})) return result;
  return record("div", std::move(result), {a, b},
                [left = Saved::input_if(b.requires_grad(), a), right = Saved::input(b)](const Tensor& grad,
                                                                                        GradSink& sink) {
                  const Tensor divisor = right.get(sink);
                  if (sink.wants(0)) sink.deliver(0, div(grad, divisor).sum_to(sink.shape(0)));
                  if (sink.wants(1)) {
                    // In this order: grad / divisor may be infinite where a quotient of 0 makes that
                    // harmless.
                    const Tensor slope = div(div(left.get(sink), divisor), divisor);
                    sink.deliver(1, neg(mul(grad, slope).sum_to(sink.shape(1))));
                  }
                });
}

Tensor maximum(const Tensor& a, const Tensor& b) { return extreme("maximum", BinaryOp::max, a, b); }

Tensor minimum(const Tensor& a, const Tensor& b) { return extreme("minimum", BinaryOp::min, a, b); }

Tensor add(const Tensor& a, Number b) {
  if (is_widened_half(a)) return add(as_computed(a), b).to(a.dtype());
  if (stays_whole(a, b)) return among_integers("add", BinaryOp::add, a, b);
  if (!is_floating(a.dtype())) return add(as_f32(a), b);
  Tensor result = empty_like(a);
  a.device().kernels().affine(a.view(), 1.0, b.real(), result.view());
  if (!recording(a)) return result;
  return record("add", std::move(result), {a},
                [](Tensor grad, GradSink& sink) { sink.deliver(0, std::move(grad)); });
}

Tensor sub(const Tensor& a, Number b) {
  if (stays_whole(a, b)) return among_integers("sub", BinaryOp::sub, a, b);
  return add(a, -b.real());
}

Tensor mul(const Tensor& a, Number b) {
  if (is_widened_half(a)) return mul(as_computed(a), b).to(a.dtype());
  if (stays_whole(a, b)) return among_integers("mul", BinaryOp::mul, a, b);
  if (!is_floating(a.dtype())) return mul(as_f32(a), b);
  Tensor result = empty_like(a);
  a.device().kernels().affine(a.view(), b.real(), -0.0, result.view());  // + 0 would turn -0 into 0
  if (!recording(a)) return result;
  return record("mul", std::move(result), {a},
                [b](const Tensor& grad, GradSink& sink) { sink.deliver(0, mul(grad, b)); });
}

Tensor div(const Tensor& a, Number b) {
  if (!is_floating(a.dtype())) return div(as_f32(a), b);
  if (differs_from_product(a.dtype(), b)) return div(a, scalar_like(a, b.real()));
  return mul(a, 1.0 / b.real());
}

Tensor sub(Number a, const Tensor& b) {
  if (is_widened_half(b)) return sub(a, as_computed(b)).to(b.dtype());
  if (stays_whole(b, a)) return add(mul(b, -1), a);
  if (!is_floating(b.dtype())) return sub(a, as_f32(b));
  Tensor result = empty_like(b);
  b.device().kernels().affine(b.view(), -1.0, a.real(), result.view());
  if (!recording(b)) return result;
  return record("sub", std::move(result), {b},
                [](const Tensor& grad, GradSink& sink) { sink.deliver(0, neg(grad)); });
}

Tensor div(Number a, const Tensor& b) { return mul(reciprocal(is_floating(b.dtype()) ? b : as_f32(b)), a); }

Tensor pow(const Tensor& a, Number exponent) {
  if (is_widened_half(a)) return pow(as_computed(a), exponent).to(a.dtype());
  if (stays_whole(a, exponent)) {
    if (exponent.whole() >= 0) return among_integers("pow", BinaryOp::pow, a, exponent);
    throw UsageError("pow: expected an exponent of at least 0 beside " + a.describe() + ", got " +
                     std::to_string(exponent.whole()) + "; convert the tensor with to()");
  }
  if (!is_floating(a.dtype())) return pow(as_f32(a), exponent);
  const double n = exponent.real();
  Tensor result = apply("pow", BinaryOp::pow, a, scalar_like(a, n));
  if (!recording(a)) return result;
  return record("pow", std::move(result), {a},
                [n, base = Saved::input(a)](const Tensor& grad, GradSink& sink) {
                  // x⁰ is constant; its formula would give 0 · ∞ at x = 0.
                  if (n == 0) return sink.deliver(0, mul(grad, 0.0));
                  sink.deliver(0, mul(grad, mul(pow(base.get(sink), n - 1), n)));
                });
}

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  if (const auto type = result_type(a, b); type && a.dtype() != b.dtype())
    return where(condition, a.to(*type), b.to(*type));
  if (autocast_mixes(a, b)) return where(autocast_full(condition), autocast_full(a), autocast_full(b));
  check_same_kind("where", a, b);
  if (condition.dtype() != DType::boolean) check_same_kind("where", condition, a);
  const Dims shape =
      broadcast_shapes(condition.shape(), broadcast_shapes(a.shape(), b.shape(), "where"), "where");
  const Tensor chosen = condition.detach().expand(shape);
  Tensor result = Tensor::empty(shape, a.shared_device(), a.dtype());
  a.device().kernels().where(chosen.view(), a.detach().expand(shape).view(), b.detach().expand(shape).view(),
                             result.view());
  if (!recording({a, b})) return result;
  // Only which side was taken counts later: a mask of one's own costs a quarter, and numbers may change.
  const Tensor mask = condition.dtype() == DType::boolean ? chosen : chosen.to(DType::boolean);
  return record("where", std::move(result), {a, b},
                [kept = Saved::input(mask)](const Tensor& grad, GradSink& sink) {
                  const Tensor chooses = kept.get(sink), zero = scalar_like(grad, 0.0);
                  if (sink.wants(0)) sink.deliver(0, where(chooses, grad, zero).sum_to(sink.shape(0)));
                  if (sink.wants(1)) sink.deliver(1, where(chooses, zero, grad).sum_to(sink.shape(1)));
                });
}

namespace {

Tensor compared(std::string_view name, BinaryOp op, const Tensor& a, const Tensor& b) {
  const auto same = [&](const Tensor& x, const Tensor& z) { return apply(name, op, x, z); };
  if (auto result = promoted(a.detach(), b.detach(), same)) return *std::move(result);
  return apply(name, op, a, b);
}

}  // namespace

Tensor equal(const Tensor& a, const Tensor& b) { return compared("equal", BinaryOp::equal, a, b); }

Tensor greater(const Tensor& a, const Tensor& b) { return compared("greater", BinaryOp::greater, a, b); }

Tensor greater_equal(const Tensor& a, const Tensor& b) {
  return compared("greater_equal", BinaryOp::greater_equal, a, b);
}

Tensor not_equal(const Tensor& a, const Tensor& b) {
  const Tensor same = compared("not_equal", BinaryOp::equal, a, b);
  return sub(1, same).to(same.dtype());
}

Tensor less(const Tensor& a, const Tensor& b) { return compared("less", BinaryOp::less, a, b); }

Tensor less_equal(const Tensor& a, const Tensor& b) {
  return compared("less_equal", BinaryOp::greater_equal, b, a);
}

}  // namespace dtrain
