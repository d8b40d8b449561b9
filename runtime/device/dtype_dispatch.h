// From a run-time dtype to a compile-time type. BF16 is what the device calls a bfloat16.
#pragma once

#include <cstdint>
#include <string_view>

#include "runtime/device/kernel_checks.h"

namespace dtrain {

/// Calls `f` with a value of the floating type: float, double or BF16.
template <class BF16>
struct DispatchFloating {
  template <class F>
  void operator()(std::string_view operation, DType dtype, F&& f) const {
    switch (dtype) {
      case DType::f32:
        return f(float{});
      case DType::f64:
        return f(double{});
      case DType::bf16:
        return f(BF16{});
      default:
        refuse_dtype(operation, dtype);
    }
  }
};

/// Floating types and int64.
template <class BF16>
struct DispatchArithmetic {
  template <class F>
  void operator()(std::string_view operation, DType dtype, F&& f) const {
    if (dtype == DType::i64) return f(std::int64_t{});
    DispatchFloating<BF16>()(operation, dtype, f);
  }
};

template <class BF16>
struct DispatchAny {
  template <class F>
  void operator()(DType dtype, F&& f) const {
    switch (dtype) {
      case DType::f32:
        return f(float{});
      case DType::f64:
        return f(double{});
      case DType::bf16:
        return f(BF16{});
      case DType::i64:
        return f(std::int64_t{});
      case DType::i32:
        return f(std::int32_t{});
      case DType::u8:
        return f(std::uint8_t{});
    }
  }
};

}  // namespace dtrain
