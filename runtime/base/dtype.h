// Element types, their sizes and names, and those that C++ has no type for. Names are PyTorch's and
// safetensors'.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace dtrain {

/// Element type of a tensor or a collective. f64 exists for gradient checks and metrics. Tensors of i32, i16,
/// i8, u8 and boolean, and on CPUs f16, have no kernels of their own: they are computed in i64 and f32.
enum class DType : std::uint8_t { f32, f64, bf16, i64, i32, u8, f16, i16, i8, boolean };

/// Bytes of one element.
constexpr std::size_t size_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::f64:
    case DType::i64:
      return 8;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::bf16:
    case DType::f16:
    case DType::i16:
      return 2;
    case DType::u8:
    case DType::i8:
    case DType::boolean:
      return 1;
  }
  return 0;
}

/// "float32", "float64", "bfloat16", "int64", "int32", "uint8", "float16", "int16", "int8", "bool".
std::string_view name_of(DType dtype) noexcept;

constexpr bool is_floating(DType dtype) noexcept {
  return dtype == DType::f32 || dtype == DType::f64 || dtype == DType::bf16 || dtype == DType::f16;
}

/// bfloat16 as stored: the upper half of an IEEE float32, rounded to nearest even; NaN stays NaN.
struct BFloat16 {
  std::uint16_t bits = 0;

  BFloat16() = default;
  explicit BFloat16(float value) noexcept {
    const auto raw = std::bit_cast<std::uint32_t>(value);
    // By a mask of 32 bits: a choice would be made of two shortened numbers, with three packings in vectors.
    const std::uint32_t rounded = raw + 0x7fffU + ((raw >> 16) & 1U), nan = raw | 0x400000U;
    const std::uint32_t is_nan = 0U - static_cast<std::uint32_t>(std::isnan(value));
    bits = static_cast<std::uint16_t>((rounded ^ ((rounded ^ nan) & is_nan)) >> 16);
  }
  explicit operator float() const noexcept {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
};
static_assert(sizeof(BFloat16) == 2);

/// IEEE binary16 as stored, rounded to nearest even; 65520 and more become infinite, NaN stays NaN.
struct Float16 {
  std::uint16_t bits = 0;

  Float16() = default;
  explicit Float16(float value) noexcept {
    const auto raw = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (raw >> 16) & 0x8000U, size = raw & 0x7fffffffU;
    std::uint32_t rest = 0;
    if (size > 0x7f800000U) {  // NaN
      rest = 0x7e00U | ((size >> 13) & 0x3ffU);
    } else if (size >= 0x477ff000U) {  // 65520
      rest = 0x7c00U;
    } else if (size >= 0x38800000U) {  // 2^-14, the smallest normal one
      rest = ((size + 0xfffU + ((size >> 13) & 1U)) >> 13) - kExponentGap;
    } else {  // 0.5 has a last digit of 2^-24, as subnormal ones have: the addition rounds
      rest = std::bit_cast<std::uint32_t>(std::bit_cast<float>(size) + 0.5F) -
             std::bit_cast<std::uint32_t>(0.5F);
    }
    bits = static_cast<std::uint16_t>(sign | rest);
  }
  explicit operator float() const noexcept {
    const std::uint32_t sign = (bits & 0x8000U) << 16, size = bits & 0x7fffU;
    if (size < 0x400U) {
      const auto subnormal = std::bit_cast<std::uint32_t>(static_cast<float>(size) * 0x1p-24F);
      return std::bit_cast<float>(sign | subnormal);
    }
    const std::uint32_t rest = size >= 0x7c00U ? 0x3fc00U | size : size + kExponentGap;
    return std::bit_cast<float>(sign | (rest << 13));
  }

 private:
  static constexpr std::uint32_t kExponentGap = (127U - 15U) << 10;
};
static_assert(sizeof(Float16) == 2);

/// A truth value as stored: a byte, true unless it is 0.
struct Bool {
  std::uint8_t bits = 0;

  Bool() = default;
  explicit Bool(bool value) noexcept : bits(value ? 1 : 0) {}
  explicit operator bool() const noexcept { return bits != 0; }
};
static_assert(sizeof(Bool) == 1 && sizeof(bool) == 1);

/// dtype_of<float> == DType::f32, and so on.
template <class T>
inline constexpr DType dtype_of = T::no_dtype_for_this_type;
template <>
inline constexpr DType dtype_of<float> = DType::f32;
template <>
inline constexpr DType dtype_of<double> = DType::f64;
template <>
inline constexpr DType dtype_of<BFloat16> = DType::bf16;
template <>
inline constexpr DType dtype_of<std::int64_t> = DType::i64;
template <>
inline constexpr DType dtype_of<std::int32_t> = DType::i32;
template <>
inline constexpr DType dtype_of<std::uint8_t> = DType::u8;
template <>
inline constexpr DType dtype_of<Float16> = DType::f16;
template <>
inline constexpr DType dtype_of<std::int16_t> = DType::i16;
template <>
inline constexpr DType dtype_of<std::int8_t> = DType::i8;
template <>
inline constexpr DType dtype_of<Bool> = DType::boolean;
template <>
inline constexpr DType dtype_of<bool> = DType::boolean;

}  // namespace dtrain
