// From a run-time dtype to a compile-time type, and the checks every CPU kernel makes of its views.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "runtime/base/dtype.h"
#include "runtime/base/error.h"
#include "runtime/device/view.h"

namespace dtrain::cpu {

/// The type arithmetic on T is done in.
template <class T>
using Compute = std::conditional_t<std::is_same_v<T, BFloat16>, float, T>;

template <class To, class From>
inline To cast(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (std::is_same_v<To, BFloat16>) {
    return BFloat16(static_cast<float>(value));
  } else if constexpr (std::is_same_v<From, BFloat16>) {
    return static_cast<To>(static_cast<float>(value));
  } else {
    return static_cast<To>(value);
  }
}

template <class T>
inline Compute<T> load(const T& value) {
  return cast<Compute<T>>(value);
}

[[noreturn]] inline void throw_unsupported(std::string_view operation, DType dtype) {
  throw UsageError("cpu kernel " + std::string(operation) + ": no version for dtype " +
                   std::string(name_of(dtype)) + "; cast the operand first");
}

/// Calls `f` with a value of the floating type: float, double or BFloat16.
template <class F>
void dispatch_floating(std::string_view operation, DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32:
      return f(float{});
    case DType::f64:
      return f(double{});
    case DType::bf16:
      return f(BFloat16{});
    default:
      throw_unsupported(operation, dtype);
  }
}

/// Floating types and int64.
template <class F>
void dispatch_arithmetic(std::string_view operation, DType dtype, F&& f) {
  if (dtype == DType::i64) return f(std::int64_t{});
  dispatch_floating(operation, dtype, f);
}

template <class F>
void dispatch_any(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32:
      return f(float{});
    case DType::f64:
      return f(double{});
    case DType::bf16:
      return f(BFloat16{});
    case DType::i64:
      return f(std::int64_t{});
    case DType::i32:
      return f(std::int32_t{});
    case DType::u8:
      return f(std::uint8_t{});
  }
}

/// Throws UsageError unless `view` has `shape`.
inline void require_shape(std::string_view operation, std::string_view argument, const View& view,
                          const Dims& shape) {
  if (view.shape == shape) return;
  throw UsageError("cpu kernel " + std::string(operation) + ": argument " + std::string(argument) +
                   " expected shape " + shape.to_string() + ", got " + view.shape.to_string());
}

inline void require_dtype(std::string_view operation, std::string_view argument, const View& view,
                          DType dtype) {
  if (view.dtype == dtype) return;
  throw UsageError("cpu kernel " + std::string(operation) + ": argument " + std::string(argument) +
                   " expected dtype " + std::string(name_of(dtype)) + ", got " +
                   std::string(name_of(view.dtype)));
}

inline void require_rank(std::string_view operation, std::string_view argument, const View& view, int rank) {
  if (view.rank() == rank) return;
  throw UsageError("cpu kernel " + std::string(operation) + ": argument " + std::string(argument) +
                   " expected " + std::to_string(rank) + " dimensions, got shape " + view.shape.to_string());
}

/// Throws UsageError unless `view` has `like`'s shape and dtype.
inline void require_like(std::string_view operation, std::string_view argument, const View& view,
                         const View& like) {
  require_shape(operation, argument, view, like.shape);
  require_dtype(operation, argument, view, like.dtype);
}

/// For an optional vector argument: null data, or `extent` elements of `dtype`.
inline void require_vector(std::string_view operation, std::string_view argument, const View& view,
                           std::int64_t extent, DType dtype) {
  if (view.data == nullptr) return;
  require_shape(operation, argument, view, {extent});
  require_dtype(operation, argument, view, dtype);
}

/// How many positions a window takes along one dimension.
constexpr std::int64_t window_outputs(std::int64_t in, std::int64_t kernel, std::int64_t stride,
                                      std::int64_t pad, std::int64_t dilation) {
  const std::int64_t room = in + 2 * pad - dilation * (kernel - 1) - 1;
  return room < 0 ? 0 : room / stride + 1;
}

}  // namespace dtrain::cpu
