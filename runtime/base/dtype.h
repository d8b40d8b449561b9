// Element types, their sizes and names, and the bfloat16 storage type. Names are PyTorch's and safetensors'.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace dtrain {

/// Element type of a tensor or a collective. f64 exists for gradient checks and metrics.
enum class DType : std::uint8_t { f32, f64, bf16, i64, i32, u8 };

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
      return 2;
    case DType::u8:
      return 1;
  }
  return 0;
}

/// "float32", "float64", "bfloat16", "int64", "int32", "uint8".
std::string_view name_of(DType dtype) noexcept;

constexpr bool is_floating(DType dtype) noexcept {
  return dtype == DType::f32 || dtype == DType::f64 || dtype == DType::bf16;
}

/// bfloat16 as stored: the upper half of an IEEE float32, rounded to nearest even; NaN stays NaN.
struct BFloat16 {
  std::uint16_t bits = 0;

  BFloat16() = default;
  explicit BFloat16(float value) noexcept {
    const auto raw = std::bit_cast<std::uint32_t>(value);
    bits = std::isnan(value) ? static_cast<std::uint16_t>((raw >> 16) | 0x40U)
                             : static_cast<std::uint16_t>((raw + 0x7fffU + ((raw >> 16) & 1U)) >> 16);
  }
  explicit operator float() const noexcept {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
};
static_assert(sizeof(BFloat16) == 2);

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

}  // namespace dtrain
