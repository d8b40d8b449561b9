// From run-time dtypes to compile-time types and element conversions.
#pragma once

#include <type_traits>

#include "runtime/base/dtype.h"
#include "runtime/device/dtype_dispatch.h"

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

inline constexpr DispatchFloating<BFloat16> dispatch_floating;
inline constexpr DispatchArithmetic<BFloat16> dispatch_arithmetic;
inline constexpr DispatchAny<BFloat16> dispatch_any;

}  // namespace dtrain::cpu
