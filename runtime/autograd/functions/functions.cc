// Element-wise functions of one tensor, each with its derivative written in differentiable operations.
#include <cmath>
#include <numbers>
#include <utility>

#include "runtime/autograd/functions/elementwise.h"
#include "runtime/autograd/functions/promotion.h"
#include "runtime/autograd/node.h"
#include "runtime/autograd/ops.h"
#include "runtime/autograd/ops/activations.h"
#include "runtime/base/error.h"
#include "runtime/device/kernel_checks.h"

namespace dtrain {
namespace {

/// Of integers float32, PyTorch's default dtype; of float16 what computes it.
Tensor as_floats(const Tensor& x) { return is_floating(x.dtype()) ? as_computed(x) : x.to(DType::f32); }

/// A function whose derivative is computed from its argument: gradient = derive(grad, x).
template <class Derive>
Tensor function_of_input(std::string_view name, UnaryOp op, const Tensor& given, Derive derive) {
  const Tensor x = as_floats(given);
  if (given.dtype() == DType::f16 && x.dtype() != DType::f16)
    return function_of_input(name, op, x, derive).to(DType::f16);
  Tensor result = apply(op, x);
  if (!recording(x)) return result;
  return record(name, std::move(result), {x},
                [derive, input = Saved::input(x)](const Tensor& grad, GradSink& sink) {
                  sink.deliver(0, derive(grad, input.get(sink)));
                });
}

/// A function whose derivative is computed from its result: gradient = derive(grad, y).
template <class Derive>
Tensor function_of_output(std::string_view name, UnaryOp op, const Tensor& given, Derive derive) {
  const Tensor x = as_floats(given);
  if (given.dtype() == DType::f16 && x.dtype() != DType::f16)
    return function_of_output(name, op, x, derive).to(DType::f16);
  Tensor result = apply(op, x);
  if (!recording(x)) return result;
  Saved output = Saved::output(result);
  return record(name, std::move(result), {x},
                [derive, output = std::move(output)](Tensor grad, GradSink& sink) {
                  sink.deliver(0, derive(std::move(grad), output.get(sink)));
                });
}

/// The normal density φ(x).
Tensor normal_density(const Tensor& x) {
  return mul(exp(mul(square(x), -0.5)), 1.0 / std::sqrt(2.0 * std::numbers::pi));
}

/// The normal distribution function Φ(x) = gelu(x) / x, with 1/2 where x is so small that gelu(x) loses its
/// digits, and Φ(x) does not differ from that.
Tensor normal_distribution(const Tensor& x) {
  const auto number = [&x](double value) { return Tensor::full({}, value, x.shared_device(), x.dtype()); };
  Tensor result;
  {
    const NoGrad no_grad;
    const Tensor at_zero = less(abs(x), number(1e-20));
    result = where(at_zero, number(0.5), div(gelu(x), where(at_zero, number(1.0), x)));
  }
  if (!recording(x)) return result;
  return record("normal distribution", std::move(result), {x},
                [input = Saved::input(x)](const Tensor& grad, GradSink& sink) {
                  sink.deliver(0, mul(grad, normal_density(input.get(sink))));
                });
}

/// A function that is constant but for its steps.
Tensor step_function(std::string_view name, UnaryOp op, const Tensor& x) {
  return record_constant(name, apply(op, as_computed(x.detach())).to(x.dtype()), {x});
}

/// One that leaves whole numbers as they are.
Tensor rounding(std::string_view name, UnaryOp op, const Tensor& x) {
  return is_floating(x.dtype()) ? step_function(name, op, x) : x.clone();
}

}  // namespace

Tensor neg(const Tensor& x) {
  if (x.dtype() == DType::boolean)
    throw UsageError("neg: expected numbers, got truth values; x == 0 tells where they are false");
  if (!is_floating(x.dtype())) return mul(x, -1);
  if (computed_in(x.dtype(), x.device()) != x.dtype()) return neg(as_computed(x)).to(x.dtype());
  Tensor result = apply(UnaryOp::neg, x);
  if (!recording(x)) return result;
  return record("neg", std::move(result), {x},
                [](const Tensor& grad, GradSink& sink) { sink.deliver(0, neg(grad)); });
}

Tensor abs(const Tensor& x) {
  if (x.dtype() == DType::u8 || x.dtype() == DType::boolean) return x.clone();
  if (!is_floating(x.dtype())) return maximum(x, mul(x, -1));
  return function_of_input("abs", UnaryOp::abs, x, [](const Tensor& grad, const Tensor& input) {
    return mul(grad, apply(UnaryOp::sign, input));
  });
}

Tensor exp(const Tensor& x) {
  return function_of_output("exp", UnaryOp::exp, x,
                            [](const Tensor& grad, const Tensor& y) { return mul(grad, y); });
}

Tensor log(const Tensor& x) {
  return function_of_input("log", UnaryOp::log, x,
                           [](const Tensor& grad, const Tensor& input) { return div(grad, input); });
}

Tensor sqrt(const Tensor& x) {
  return function_of_output("sqrt", UnaryOp::sqrt, x,
                            [](const Tensor& grad, const Tensor& y) { return div(grad, mul(y, 2.0)); });
}

Tensor rsqrt(const Tensor& x) {
  return function_of_output("rsqrt", UnaryOp::rsqrt, x, [](const Tensor& grad, const Tensor& y) {
    // Halved first: the product may be near the largest number.
    return mul(mul(grad, -0.5), mul(square(y), y));
  });
}

Tensor reciprocal(const Tensor& x) {
  return function_of_output("reciprocal", UnaryOp::reciprocal, x,
                            [](const Tensor& grad, const Tensor& y) { return neg(mul(grad, square(y))); });
}

Tensor square(const Tensor& x) {
  if (x.dtype() == DType::boolean) return x.to(DType::i64);  // as pow(x, 2)
  if (!is_floating(x.dtype())) return mul(x, x);
  return function_of_input("square", UnaryOp::square, x, [](const Tensor& grad, const Tensor& input) {
    return mul(grad, mul(input, 2.0));
  });
}

Tensor relu(const Tensor& x) {
  if (!is_floating(x.dtype())) return clamp(x, 0);
  return function_of_output("relu", UnaryOp::relu, x,
                            [](Tensor grad, const Tensor& y) { return relu_grad(std::move(grad), y); });
}

Tensor sigmoid(const Tensor& x) {
  return function_of_output("sigmoid", UnaryOp::sigmoid, x, [](const Tensor& grad, const Tensor& y) {
    if (!grad_enabled()) return apply("sigmoid backward", BinaryOp::sigmoid_grad, grad, y);
    return mul(grad, mul(y, add(neg(y), 1.0)));
  });
}

Tensor tanh(const Tensor& x) {
  return function_of_output("tanh", UnaryOp::tanh, x, [](const Tensor& grad, const Tensor& y) {
    if (!grad_enabled()) return apply("tanh backward", BinaryOp::tanh_grad, grad, y);
    return mul(grad, add(neg(square(y)), 1.0));
  });
}

Tensor gelu(const Tensor& x) {
  return function_of_input("gelu", UnaryOp::gelu, x, [](const Tensor& grad, const Tensor& input) {
    if (!grad_enabled()) return apply("gelu backward", BinaryOp::gelu_grad, grad, input);
    // The two terms cancel near x = -0.75, of which 16 bits leave nothing.
    const Tensor wide = is_half(input.dtype()) ? input.to(DType::f32) : input;
    const Tensor slope = add(normal_distribution(wide), mul(wide, normal_density(wide)));
    return mul(grad.to(wide.dtype()), slope).to(input.dtype());
  });
}

Tensor gelu_tanh(const Tensor& x) {
  return function_of_input("gelu", UnaryOp::gelu_tanh, x, [](const Tensor& grad, const Tensor& input) {
    if (!grad_enabled()) return apply("gelu backward", BinaryOp::gelu_tanh_grad, grad, input);
    const Tensor wide = is_half(input.dtype()) ? input.to(DType::f32) : input;
    const double linear = std::sqrt(2 / std::numbers::pi), cubic = 0.044715 * linear;
    const Tensor squares = square(wide);
    const Tensor bent = tanh(mul(wide, add(mul(squares, cubic), linear)));
    const Tensor bend = mul(add(neg(square(bent)), 1.0), add(mul(squares, 3 * cubic), linear));
    const Tensor slope = mul(add(add(bent, 1.0), mul(wide, bend)), 0.5);
    return mul(grad.to(wide.dtype()), slope).to(input.dtype());
  });
}

Tensor sin(const Tensor& x) {
  return function_of_input("sin", UnaryOp::sin, x,
                           [](const Tensor& grad, const Tensor& input) { return mul(grad, cos(input)); });
}

Tensor cos(const Tensor& x) {
  return function_of_input("cos", UnaryOp::cos, x, [](const Tensor& grad, const Tensor& input) {
    return neg(mul(grad, sin(input)));
  });
}

Tensor erf(const Tensor& x) {
  return function_of_input("erf", UnaryOp::erf, x, [](const Tensor& grad, const Tensor& input) {
    return mul(grad, mul(exp(neg(square(input))), 2 / std::sqrt(std::numbers::pi)));
  });
}

Tensor expm1(const Tensor& x) {
  return function_of_output("expm1", UnaryOp::expm1, x,
                            [](const Tensor& grad, const Tensor& y) { return mul(grad, add(y, 1.0)); });
}

Tensor log1p(const Tensor& x) {
  return function_of_input("log1p", UnaryOp::log1p, x, [](const Tensor& grad, const Tensor& input) {
    return div(grad, add(input, 1.0));
  });
}

Tensor floor(const Tensor& x) { return rounding("floor", UnaryOp::floor, x); }
Tensor ceil(const Tensor& x) { return rounding("ceil", UnaryOp::ceil, x); }
Tensor round(const Tensor& x) { return rounding("round", UnaryOp::round, x); }
Tensor trunc(const Tensor& x) { return rounding("trunc", UnaryOp::trunc, x); }
Tensor sign(const Tensor& x) { return step_function("sign", UnaryOp::sign, x); }

}  // namespace dtrain
