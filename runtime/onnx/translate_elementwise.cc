// Element by element: fills, copies, functions and arithmetic.
#include <cmath>
#include <numbers>

#include "runtime/base/error.h"
#include "runtime/onnx/translator.h"

namespace dtrain::onnx {
namespace {

constexpr const char* kUnaryNames[] = {
#define DTRAIN_UNARY(name, Functor) #name,
#include "runtime/device/kernels.def"
};
constexpr const char* kBinaryNames[] = {
#define DTRAIN_BINARY(name, Functor) #name,
#include "runtime/device/kernels.def"
};
constexpr const char* kParametricNames[] = {
#define DTRAIN_PARAMETRIC(name, formula) #name,
#include "runtime/device/kernels.def"
};

/// The shape that operands of these give together.
Dims broadcast_shape(const std::vector<Value>& operands, int rank) {
  Dims shape = Dims::filled(rank, 1);
  for (const Value& operand : operands) {
    const int behind = rank - operand.shape.rank();
    for (int dim = 0; dim < operand.shape.rank(); ++dim)
      shape[behind + dim] = std::max(shape[behind + dim], operand.shape[dim]);
  }
  return shape;
}

}  // namespace

void Translator::write_broadcast(const std::string& name, const std::vector<Value>& operands,
                                 const View& out) {
  const Dims shape = broadcast_shape(operands, out.rank());
  const bool whole = std::any_of(operands.begin(), operands.end(),
                                 [&](const Value& operand) { return operand.shape.rank() == out.rank(); });
  values_.write(out, builder_.expand({name, whole ? shape : Dims{}}, out.shape).name);
}

void Translator::kernel(Kernel<KernelId::fill>, Name, const View& out, const double& value) {
  values_.fill(out, builder_.number(out.dtype, value));
}

void Translator::kernel(Kernel<KernelId::copy>, Name, const View& in, const View& out) {
  const Value value = values_.read(in);
  const std::string name = builder_.cast(value.name, in.dtype, out.dtype);
  if (value.shape.rank() == 0 && in.rank() > 0) return values_.fill(out, name);
  values_.write(out, builder_.expand({name, value.shape}, out.shape).name);
}

void Translator::kernel(Kernel<KernelId::affine>, Name, const View& in, const double& scale,
                        const double& shift, const View& out) {
  const Value value = values_.read(in);
  std::string name = builder_.cast(value.name, in.dtype, out.dtype);
  if (scale != 1) name = builder_.node("Mul", {name, builder_.number(out.dtype, scale)});
  if (shift != 0) name = builder_.node("Add", {name, builder_.number(out.dtype, shift)});
  write_broadcast(name, {value}, out);
}

std::string Translator::unary_node(UnaryOp op, const Value& x, DType dtype) {
  const auto number = [&](double value) { return builder_.number(dtype, value); };
  const auto node = [&](const char* type, std::vector<std::string> inputs) {
    return builder_.node(type, std::move(inputs));
  };
  switch (op) {
    case UnaryOp::neg:
      return node("Neg", {x.name});
    case UnaryOp::abs:
      return node("Abs", {x.name});
    case UnaryOp::exp:
      return node("Exp", {x.name});
    case UnaryOp::log:
      return node("Log", {x.name});
    case UnaryOp::log1p:
      return node("Log", {node("Add", {x.name, number(1)})});
    case UnaryOp::expm1:
      return node("Sub", {node("Exp", {x.name}), number(1)});
    case UnaryOp::sin:
      return node("Sin", {x.name});
    case UnaryOp::cos:
      return node("Cos", {x.name});
    case UnaryOp::erf:
      return node("Erf", {x.name});
    case UnaryOp::floor:
      return node("Floor", {x.name});
    case UnaryOp::ceil:
      return node("Ceil", {x.name});
    case UnaryOp::round:
      return node("Round", {x.name});
    case UnaryOp::trunc:
      return node("Mul", {node("Sign", {x.name}), node("Floor", {node("Abs", {x.name})})});
    case UnaryOp::sqrt:
      return node("Sqrt", {x.name});
    case UnaryOp::rsqrt:
      return node("Reciprocal", {node("Sqrt", {x.name})});
    case UnaryOp::reciprocal:
      return node("Reciprocal", {x.name});
    case UnaryOp::relu:
      return node("Relu", {x.name});
    case UnaryOp::sigmoid:
      return node("Sigmoid", {x.name});
    case UnaryOp::tanh:
      return node("Tanh", {x.name});
    case UnaryOp::gelu: {
      const std::string erf = node("Erf", {node("Mul", {x.name, number(1 / std::sqrt(2.0))})});
      return node("Mul", {node("Mul", {x.name, number(0.5)}), node("Add", {erf, number(1)})});
    }
    case UnaryOp::gelu_tanh: {
      const std::string cube = node("Mul", {node("Mul", {x.name, x.name}), x.name});
      const std::string inner = node("Add", {x.name, node("Mul", {cube, number(0.044715)})});
      const std::string turned =
          node("Tanh", {node("Mul", {inner, number(std::sqrt(2 / std::numbers::pi))})});
      return node("Mul", {node("Mul", {x.name, number(0.5)}), node("Add", {turned, number(1)})});
    }
    case UnaryOp::sign:
      return node("Sign", {x.name});
    case UnaryOp::square:
      return node("Mul", {x.name, x.name});
    case UnaryOp::silu:
      return node("Mul", {x.name, node("Sigmoid", {x.name})});
    case UnaryOp::softsign:
      return node("Softsign", {x.name});
    default:
      refuse_operation(kUnaryNames[static_cast<std::size_t>(op)]);
  }
}

void Translator::kernel(Kernel<KernelId::unary>, Name, const UnaryOp& op, const View& in, const View& out) {
  const Value x = values_.read(in);
  write_broadcast(unary_node(op, x, in.dtype), {x}, out);
}

std::string Translator::parametric_node(ParametricOp op, const Value& x, double a, double b, DType dtype) {
  const auto number = [&](double value) { return builder_.number(dtype, value); };
  switch (op) {
    case ParametricOp::leaky_relu:
      return builder_.node("LeakyRelu", {x.name}, {{"alpha", static_cast<float>(a)}});
    case ParametricOp::clamp: {
      std::string name = x.name;
      if (std::isfinite(a)) name = builder_.node("Max", {name, number(a)});
      if (std::isfinite(b)) name = builder_.node("Min", {name, number(b)});
      return name == x.name ? builder_.node("Identity", {name}) : name;
    }
    case ParametricOp::softplus: {
      const std::string scaled = builder_.node("Mul", {x.name, number(a)});
      const std::string soft = builder_.node("Div", {builder_.node("Softplus", {scaled}), number(a)});
      return builder_.node("Where", {builder_.node("Greater", {scaled, number(b)}), x.name, soft});
    }
    default:
      refuse_operation(kParametricNames[static_cast<std::size_t>(op)]);
  }
}

void Translator::kernel(Kernel<KernelId::parametric>, Name, const ParametricOp& op, const View& in,
                        const double& a, const double& b, const View& out) {
  const Value x = values_.read(in);
  write_broadcast(parametric_node(op, x, a, b, in.dtype), {x}, out);
}

std::string Translator::binary_node(BinaryOp op, const Value& a, const Value& b, DType dtype) {
  const auto plain = [&](const char* type) { return builder_.node(type, {a.name, b.name}); };
  const auto compared = [&](const char* type) { return builder_.cast(plain(type), element_type(dtype)); };
  switch (op) {
    case BinaryOp::add:
      return plain("Add");
    case BinaryOp::sub:
      return plain("Sub");
    case BinaryOp::mul:
      return plain("Mul");
    case BinaryOp::div:
      return plain("Div");
    case BinaryOp::pow:
      return plain("Pow");
    case BinaryOp::max:
      return plain("Max");
    case BinaryOp::min:
      return plain("Min");
    case BinaryOp::equal:
      return compared("Equal");
    case BinaryOp::greater:
      return compared("Greater");
    case BinaryOp::greater_equal:
      return compared("GreaterOrEqual");
    case BinaryOp::less:
      return compared("Less");
    case BinaryOp::silu_mul:
      return builder_.node("Mul",
                           {builder_.node("Mul", {a.name, builder_.node("Sigmoid", {a.name})}), b.name});
    case BinaryOp::prelu:
      return builder_.node("Where", {builder_.node("Greater", {a.name, builder_.number(dtype, 0)}), a.name,
                                     builder_.node("Mul", {b.name, a.name})});
    default:
      refuse_operation(kBinaryNames[static_cast<std::size_t>(op)]);
  }
}

void Translator::kernel(Kernel<KernelId::binary>, Name, const BinaryOp& op, const View& a, const View& b,
                        const View& out) {
  const Value left = values_.read(a), right = values_.read(b);
  write_broadcast(binary_node(op, left, right, a.dtype), {left, right}, out);
}

void Translator::kernel(Kernel<KernelId::where>, Name, const View& condition, const View& a, const View& b,
                        const View& out) {
  const Value chosen = values_.read(condition), left = values_.read(a), right = values_.read(b);
  const std::string is_true = builder_.cast(chosen.name, ElementType::boolean);
  write_broadcast(builder_.node("Where", {is_true, left.name, right.name}), {chosen, left, right}, out);
}

void Translator::kernel(Kernel<KernelId::accumulate>, Name, const View& in, const double& scale,
                        const View& out) {
  const Value more = values_.read(in);
  std::string name = more.name;
  if (scale != 1) name = builder_.node("Mul", {name, builder_.number(in.dtype, scale)});
  values_.write(out, builder_.node("Add", {values_.read_whole(out), name}));
}

}  // namespace dtrain::onnx
