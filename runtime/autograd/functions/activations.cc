// The functions of ops/activations.h, each with its derivative written in differentiable operations.
#include "runtime/autograd/ops/activations.h"

#include <limits>
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

Tensor number_like(const Tensor& x, double value) {
  return Tensor::full({}, value, x.shared_device(), x.dtype());
}

/// `op` of each element; gradient = grad · slope(x).
template <class Slope>
Tensor with_slope(std::string_view name, ParametricOp op, const Tensor& x, double a, double b, Slope slope) {
  check_floating(name, x);
  Tensor result = apply(op, x, a, b);
  if (!recording(x)) return result;
  return record(name, std::move(result), {x},
                [slope, input = Saved::input(x)](const Tensor& grad, GradSink& sink) {
                  sink.deliver(0, mul(grad, slope(input.get(sink))));
                });
}

/// The derivative of softplus, differentiable once more.
Tensor softplus_slope(const Tensor& x, double beta, double threshold) {
  Tensor result = apply(ParametricOp::softplus_slope, x, beta, threshold);
  if (!recording(x)) return result;
  Saved output = Saved::output(result);
  return record("softplus slope", std::move(result), {x},
                [beta, output = std::move(output)](const Tensor& grad, GradSink& sink) {
                  const Tensor y = output.get(sink);
                  sink.deliver(0, mul(grad, mul(mul(y, add(neg(y), 1.0)), beta)));
                });
}

/// prelu's weight as it broadcasts over x.
Tensor along_channels(const Tensor& x, const Tensor& weight) {
  const std::int64_t channels = x.rank() > 1 ? x.size(1) : 1;
  if (weight.rank() > 1 || (weight.numel() != 1 && weight.numel() != channels)) {
    throw UsageError("prelu: expected a weight of 1 or " + std::to_string(channels) + " elements for x " +
                     x.describe() + ", got " + weight.describe());
  }
  if (weight.numel() == 1) return weight.reshape({});
  Dims shape = Dims::filled(x.rank(), 1);
  shape[1] = channels;
  return weight.reshape(shape);
}

/// In int64, which every integer converts to and back from with the same bits.
Tensor clamp_integers(const Tensor& x, std::optional<Number> min, std::optional<Number> max) {
  Tensor result = x.to(DType::i64);
  const auto bound = [&x](Number number) {
    return Tensor::from_data({number.whole()}, {}, x.shared_device());
  };
  if (min) result = maximum(result, bound(*min));
  if (max) result = minimum(result, bound(*max));
  return result.to(x.dtype());
}

}  // namespace

Tensor leaky_relu(const Tensor& x, double negative_slope) {
  return with_slope("leaky_relu", ParametricOp::leaky_relu, x, negative_slope, 0,
                    [negative_slope](const Tensor& input) {
                      return apply(ParametricOp::leaky_relu_slope, input, negative_slope, 0);
                    });
}

Tensor prelu(const Tensor& x, const Tensor& given_weight) {
  check_floating("prelu", x);
  const Tensor own = autocast_enabled() ? given_weight.to(x.dtype()) : given_weight;
  check_same_kind("prelu", x, own);
  const Tensor weight = along_channels(x, own);
  Tensor result = apply("prelu", BinaryOp::prelu, x, weight);
  if (!recording({x, weight})) return result;
  return record("prelu", std::move(result), {x, weight},
                [input = Saved::input(x), slope = Saved::input(weight)](const Tensor& grad, GradSink& sink) {
                  const Tensor at = input.get(sink), weights = slope.get(sink), zero = number_like(at, 0);
                  const Tensor positive = greater(at.detach(), zero);
                  if (sink.wants(0)) sink.deliver(0, where(positive, grad, mul(grad, weights)));
                  if (sink.wants(1)) {
                    sink.deliver(1, where(positive, zero, mul(grad, at)).sum_to(sink.shape(1)));
                  }
                });
}

Tensor silu(const Tensor& x) {
  check_floating("silu", x);
  Tensor result = apply(UnaryOp::silu, x);
  if (!recording(x)) return result;
  return record("silu", std::move(result), {x},
                [input = Saved::input(x)](const Tensor& grad, GradSink& sink) {
                  const Tensor at = input.get(sink);
                  if (!grad_enabled()) {
                    return sink.deliver(0, apply("silu backward", BinaryOp::silu_grad, grad, at));
                  }
                  const Tensor share = sigmoid(at);
                  sink.deliver(0, mul(grad, mul(share, add(mul(at, add(neg(share), 1.0)), 1.0))));
                });
}

Tensor silu_mul(const Tensor& gate, const Tensor& x) {
  check_floating("silu_mul", gate);
  if (gate.shape() != x.shape()) {
    throw UsageError("silu_mul: expected operands of one shape, got " + gate.describe() + " and " +
                     x.describe());
  }
  if (autocast_mixes(gate, x)) return silu_mul(autocast_full(gate), autocast_full(x));
  Tensor result = apply("silu_mul", BinaryOp::silu_mul, gate, x);
  if (!recording({gate, x})) return result;
  return record("silu_mul", std::move(result), {gate, x},
                [gate = Saved::input(gate), x = Saved::input(x)](const Tensor& grad, GradSink& sink) {
                  const Tensor at = gate.get(sink), factor = x.get(sink);
                  if (sink.wants(1)) sink.deliver(1, silu_mul(at, grad));
                  if (!sink.wants(0)) return;
                  const Tensor through = mul(grad, factor);
                  if (!grad_enabled()) {
                    return sink.deliver(0, apply("silu backward", BinaryOp::silu_grad, through, at));
                  }
                  const Tensor share = sigmoid(at);
                  sink.deliver(0, mul(through, mul(share, add(mul(at, add(neg(share), 1.0)), 1.0))));
                });
}

Tensor softsign(const Tensor& x) {
  check_floating("softsign", x);
  Tensor result = apply(UnaryOp::softsign, x);
  if (!recording(x)) return result;
  return record("softsign", std::move(result), {x},
                [input = Saved::input(x)](const Tensor& grad, GradSink& sink) {
                  sink.deliver(0, div(grad, square(add(abs(input.get(sink)), 1.0))));
                });
}

Tensor softplus(const Tensor& x, double beta, double threshold) {
  return with_slope(
      "softplus", ParametricOp::softplus, x, beta, threshold,
      [beta, threshold](const Tensor& input) { return softplus_slope(input, beta, threshold); });
}

Tensor clamp(const Tensor& x, std::optional<Number> min, std::optional<Number> max) {
  if (!min && !max) throw UsageError("clamp: expected min, max or both, got neither");
  if (!is_floating(x.dtype())) {
    const bool whole = (!min || min->is_whole()) && (!max || max->is_whole());
    return whole ? clamp_integers(x, min, max) : clamp(x.to(DType::f32), min, max);
  }
  if (computed_in(x.dtype(), x.device()) != x.dtype()) return clamp(as_computed(x), min, max).to(x.dtype());
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double low = min ? min->real() : -kInfinity, high = max ? max->real() : kInfinity;
  Tensor result = apply(ParametricOp::clamp, x, low, high);
  if (!recording(x)) return result;
  return record("clamp", std::move(result), {x},
                [low, high, input = Saved::input(x)](const Tensor& grad, GradSink& sink) {
                  const Tensor inside = apply(ParametricOp::clamp_slope, input.get(sink), low, high);
                  sink.deliver(0, where(inside, grad, number_like(grad, 0)));
                });
}

Tensor pow(const Tensor& a, const Tensor& b) {
  if (autocast_mixes(a, b)) return pow(autocast_full(a), autocast_full(b));
  Tensor result = apply("pow", BinaryOp::pow, a, b);
  if (!recording({a, b})) return result;
  return record("pow", std::move(result), {a, b},
                [base = Saved::input(a), exponent = Saved::input(b)](const Tensor& grad, GradSink& sink) {
                  const Tensor x = base.get(sink), n = exponent.get(sink), zero = number_like(x, 0);
                  if (sink.wants(0)) {  // x⁰ is constant; its formula would give 0 · ∞ at x = 0
                    const Tensor constant = equal(n.detach(), zero);
                    const Tensor slope = where(constant, zero, mul(n, pow(x, add(n, -1.0))));
                    sink.deliver(0, mul(grad, slope).sum_to(sink.shape(0)));
                  }
                  if (!sink.wants(1)) return;
                  // 0ⁿ is 0 on both sides of n; its formula would give 0 · -∞.
                  const Tensor flat = mul(equal(x.detach(), zero), greater_equal(n.detach(), zero));
                  const Tensor safe = where(flat, number_like(x, 1), x);
                  sink.deliver(1,
                               mul(grad, where(flat, zero, mul(pow(x, n), log(safe)))).sum_to(sink.shape(1)));
                });
}

}  // namespace dtrain
