// From run-time dtypes to compile-time types and element conversions.
#pragma once

#include <type_traits>

#include "runtime/base/dtype.h"
#include "runtime/device/dtype_dispatch.h"

namespace dtrain::cpu {

/// The floating types that arithmetic widens to float.
template <class T>
inline constexpr bool kIsHalf = std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>;

/// The type arithmetic on T is done in.
template <class T>
using Compute =
    std::conditional_t<kIsHalf<T>, float, std::conditional_t<std::is_same_v<T, Bool>, std::uint8_t, T>>;

template <class To, class From>
inline To cast(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (kIsHalf<From>) {
    return cast<To>(static_cast<float>(value));
  } else if constexpr (std::is_same_v<From, Bool>) {
    return cast<To>(static_cast<std::uint8_t>(value.bits != 0));
  } else if constexpr (kIsHalf<To>) {
    return To(static_cast<float>(value));
  } else if constexpr (std::is_same_v<To, Bool>) {
    return Bool(value != From(0));
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
inline constexpr DispatchScalable<BFloat16> dispatch_scalable;
inline constexpr DispatchAny<BFloat16, Float16> dispatch_any;
inline constexpr DispatchBits dispatch_bits;

}  // namespace dtrain::cpu
