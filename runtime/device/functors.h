// What each element-wise operation does to one element, written once for host and device. A functor works in
// the compute type: float for f32, bf16 and f16, double for f64, and int64 where kIntegers says that it makes
// sense.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "runtime/device/elementary.h"
#include "runtime/device/kernels.h"

namespace dtrain::functor {

struct Neg {
  static constexpr bool kIntegers = true;
  template <class T>
  DTRAIN_HOST_DEVICE T operator()(T x) const {
    return -x;
  }
};

struct Abs {
  static constexpr bool kIntegers = true;
  template <class T>
  DTRAIN_HOST_DEVICE T operator()(T x) const {
    return std::abs(x);
  }
};

struct Exp {
  static constexpr bool kIntegers = false;
  template <class T>
  DTRAIN_HOST_DEVICE T operator()(T x) const {
    return math::exp(x);
  }
};

struct Log {
  static constexpr bool kIntegers = false;
  template <class T>
  DTRAIN_HOST_DEVICE T operator()(T x) const {
    return math::log(x);
  }
};

struct Sqrt {
  static constexpr bool kIntegers = false;
  template <class T>
  DTRAIN_HOST_DEVICE T operator()(T x) const {
    return std::sqrt(x);
  }
};

struct Rsqrt {
  static constexpr bool kIntegers = false;
  template <class T>
  DTRAIN_HOST_DEVICE T operator()(T x) const {
    return T(1) / std::sqrt(x);
  }
};

struct Reciprocal {
  static constexpr bool kIntegers = false;
  template <class T>
  DTRAIN_HOST_DEVICE T operator()(T x) const {
    return T(1) / x;
  }
};

/// NaN stays NaN, so that a diverged run is seen.
struct Relu {
  static constexpr bool kIntegers = true;
  template <class T>
  DTRAIN_HOST_DEVICE T operator()(T x) const {
    return x < T(0) ? T(0) : x;
  }
};

struct Sigmoid {
  static constexpr bool kIntegers = false;
  template <class T>
  DTRAIN_HOST_DEVICE T operator()(T x) const {
    return math::sigmoid(x);
  }
};

struct Tanh {
  static constexpr bool kIntegers = false;
  template <class T>
  DTRAIN_HOST_DEVICE T operator()(T x) const {
    return math::tanh(x);
  }
};

/// The exact form, x·Φ(x).
struct Gelu {
  static constexpr bool kIntegers = false;
  template <class T>
  DTRAIN_HOST_DEVICE T operator()(T x) const {
    return x * T(0.5) * (T(1) + math::erf(x * T(0.70710678118654752440)));
  }
};

/// a · the derivative of gelu at b, Φ(b) + b · φ(b).
struct GeluGrad {
  static constexpr bool kIntegers = false;
  template <class T>
  DTRAIN_HOST_DEVICE T operator()(T a, T b) const {
    const T distribution = T(0.5) * (T(1) + math::erf(b * T(0.70710678118654752440)));
    return a * (distribution + b * (T(0.39894228040143267794) * math::fast_exp(b * b * T(-0.5))));
  }
};

/// Its approximation by tanh, x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³))), as GPT-2 has it.
struct GeluTanh {
  static constexpr bool kIntegers = false;
  template <class T>
  DTRAIN_HOST_DEVICE T operator()(T x) const {
    return T(0.5) * x * (T(1) + math::tanh(x * (T(0.79788456080286535588) + T(0.03567740813630062) * x * x)));
  }
};

/// a · its derivative at b.
struct GeluTanhGrad {
  static constexpr bool kIntegers = false;
  template <class T>
  DTRAIN_HOST_DEVICE T operator()(T a, T b) const {
    const T square = b * b;
    const T bent = math::tanh(b * (T(0.79788456080286535588) + T(0.03567740813630062) * square));
    const T slope = T(0.79788456080286535588) + T(3 * 0.03567740813630062) * square;
    return a * (T(0.5) * ((T(1) + bent) + b * (T(1) - bent * bent) * slope));
  }
};

/// Of a float on the CPU, angles up to kLargestAngle; others are far().
struct Sin {
  static constexpr bool kIntegers = false;
  template <class T>
  DTRAIN_HOST_DEVICE T operator()(T x) const {
    return math::sin(x);
  }
  static float far(float x) { return static_cast<float>(std::sin(static_cast<double>(x))); }
};

struct Cos {
  static constexpr bool kIntegers = false;
  template <class T>
  DTRAIN_HOST_DEVICE T operator()(T x) const {
    return math::cos(x);
  }
  static float far(float x) { return static_cast<float>(std::cos(static_cast<double>(x))); }
};

struct Sign {
  static constexpr bool kIntegers = true;
  template <class T>
  DTRAIN_HOST_DEVICE T operator()(T x) const {
    return T(x > T(0)) - T(x < T(0));
  }
};

struct RoundHalf {
  static constexpr bool kIntegers = false;
  template <class T>
  DTRAIN_HOST_DEVICE T operator()(T x) const {
    return math::rounded_to_half(x);
  }
};

struct Square {
  static constexpr bool kIntegers = true;
  template <class T>
  DTRAIN_HOST_DEVICE T operator()(T x) const {
    return x * x;
  }
};

struct Add {
  template <class T>
  DTRAIN_HOST_DEVICE T operator()(T a, T b) const {
    return a + b;
  }
};

struct Sub {
  template <class T>
  DTRAIN_HOST_DEVICE T operator()(T a, T b) const {
    return a - b;
  }
};

struct Mul {
  template <class T>
  DTRAIN_HOST_DEVICE T operator()(T a, T b) const {
    return a * b;
  }
};

/// Integer division truncates; the caller has refused zero divisors.
struct Div {
  template <class T>
  DTRAIN_HOST_DEVICE T operator()(T a, T b) const {
    return a / b;
  }
};

/// Integer powers wrap as unsigned arithmetic does; negative integer exponents give 0 but for bases 1 and -1.
struct Pow {
  template <class T>
  DTRAIN_HOST_DEVICE T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      if (b < 0) return a == 1 ? 1 : (a == -1 ? (b % 2 == 0 ? 1 : -1) : 0);
      std::uint64_t base = static_cast<std::uint64_t>(a), result = 1;
      for (T left = b; left > 0; left >>= 1, base *= base) {
        if (left & 1) result *= base;
      }
      return static_cast<T>(result);
    } else {
      return std::pow(a, b);
    }
  }
};

/// NaN in either operand gives NaN.
struct Max {
  template <class T>
  DTRAIN_HOST_DEVICE T operator()(T a, T b) const {
    const T chosen = a > b ? a : b;  // b where b is NaN
    return a != a ? a : chosen;
  }
};

struct Min {
  template <class T>
  DTRAIN_HOST_DEVICE T operator()(T a, T b) const {
    const T chosen = a < b ? a : b;  // b where b is NaN
    return a != a ? a : chosen;
  }
};

/// A gate of NaN is open, so that a diverged run is seen in its gradients too.
struct ReluGrad {
  template <class T>
  DTRAIN_HOST_DEVICE T operator()(T a, T b) const {
    return b <= T(0) ? T(0) : a;
  }
};

struct Equal {
  template <class T>
  DTRAIN_HOST_DEVICE T operator()(T a, T b) const {
    return T(a == b);
  }
};

struct Greater {
  template <class T>
  DTRAIN_HOST_DEVICE T operator()(T a, T b) const {
    return T(a > b);
  }
};

struct GreaterEqual {
  template <class T>
  DTRAIN_HOST_DEVICE T operator()(T a, T b) const {
    return T(a >= b);
  }
};

struct Less {
  template <class T>
  DTRAIN_HOST_DEVICE T operator()(T a, T b) const {
    return T(a < b);
  }
};

/// The functions that kernels.def writes as formulas.
namespace formulas {

#define DTRAIN_UNARY_FORMULA(name, formula)      \
  struct name {                                  \
    static constexpr bool kIntegers = false;     \
    template <class T>                           \
    DTRAIN_HOST_DEVICE T operator()(T x) const { \
      return formula;                            \
    }                                            \
  };
#define DTRAIN_BINARY_FORMULA(name, formula)          \
  struct name {                                       \
    static constexpr bool kIntegers = false;          \
    template <class T>                                \
    DTRAIN_HOST_DEVICE T operator()(T a, T b) const { \
      return formula;                                 \
    }                                                 \
  };
#define DTRAIN_PARAMETRIC(name, formula)                                                     \
  struct name {                                                                              \
    template <class T>                                                                       \
    DTRAIN_HOST_DEVICE T operator()(T x, [[maybe_unused]] T a, [[maybe_unused]] T b) const { \
      return formula;                                                                        \
    }                                                                                        \
  };
#include "runtime/device/kernels.def"

}  // namespace formulas

/// Whether a function of two numbers is one of integers, too.
template <class Functor>
constexpr bool takes_integers() {
  if constexpr (requires { Functor::kIntegers; }) return Functor::kIntegers;
  return true;
}

/// Calls `visitor` with the functor of `op`.
template <class Visitor>
void visit(UnaryOp op, Visitor&& visitor) {
  switch (op) {
#define DTRAIN_UNARY(name, Functor) \
  case UnaryOp::name:               \
    return visitor(Functor{});
#include "runtime/device/kernels.def"
  }
}

template <class Visitor>
void visit(BinaryOp op, Visitor&& visitor) {
  switch (op) {
#define DTRAIN_BINARY(name, Functor) \
  case BinaryOp::name:               \
    return visitor(Functor{});
#include "runtime/device/kernels.def"
  }
}

template <class Visitor>
void visit(ParametricOp op, Visitor&& visitor) {
  switch (op) {
#define DTRAIN_PARAMETRIC(name, formula) \
  case ParametricOp::name:               \
    return visitor(formulas::name{});
#include "runtime/device/kernels.def"
  }
}

}  // namespace dtrain::functor
