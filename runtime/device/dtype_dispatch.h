// From a run-time dtype to a compile-time type. BF16 and F16 are what the device calls bfloat16 and float16;
// F16 is void where it does not compute in it.
#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>

#include "runtime/device/kernel_checks.h"

namespace dtrain {

/// Calls `f` with a value of the floating type: float, double, BF16 or F16.
template <class BF16, class F16 = void>
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
      case DType::f16:
        if constexpr (!std::is_void_v<F16>) return f(F16{});
        [[fallthrough]];
      default:
        refuse_dtype(operation, dtype);
    }
  }
};

/// Floating types and int64.
template <class BF16, class F16 = void>
struct DispatchArithmetic {
  template <class F>
  void operator()(std::string_view operation, DType dtype, F&& f) const {
    if (dtype == DType::i64) return f(std::int64_t{});
    DispatchFloating<BF16, F16>()(operation, dtype, f);
  }
};

/// What can be scaled: the types above and those that pixels and tokens come in.
template <class BF16, class F16 = void>
struct DispatchScalable {
  template <class F>
  void operator()(std::string_view operation, DType dtype, F&& f) const {
    if (dtype == DType::i32) return f(std::int32_t{});
    if (dtype == DType::u8) return f(std::uint8_t{});
    DispatchArithmetic<BF16, F16>()(operation, dtype, f);
  }
};

/// Every type that is stored.
template <class BF16, class F16>
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
      case DType::f16:
        return f(F16{});
      case DType::i16:
        return f(std::int16_t{});
      case DType::i8:
        return f(std::int8_t{});
      case DType::boolean:
        return f(Bool{});
    }
  }
};

/// For what only moves elements: an unsigned integer of their size.
struct DispatchBits {
  template <class F>
  void operator()(DType dtype, F&& f) const {
    switch (size_of(dtype)) {
      case 8:
        return f(std::uint64_t{});
      case 4:
        return f(std::uint32_t{});
      case 2:
        return f(std::uint16_t{});
      default:
        return f(std::uint8_t{});
    }
  }
};

}  // namespace dtrain
