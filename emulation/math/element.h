// Element types of arrays, and conversions as a GPU rounds them.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace emulation {

enum class Element { f32, f64, bf16, f16 };

inline std::size_t size_of(Element type) { return type == Element::f64 ? 8 : type == Element::f32 ? 4 : 2; }

inline float from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// Rounds to nearest, ties to even; NaNs stay NaNs.
inline std::uint16_t to_bf16(float value) {
  auto bits = std::bit_cast<std::uint32_t>(value);
  if (value != value) return static_cast<std::uint16_t>(bits >> 16 | 0x40);
  bits += 0x7FFF + (bits >> 16 & 1);
  return static_cast<std::uint16_t>(bits >> 16);
}

float from_f16(std::uint16_t bits);
std::uint16_t to_f16(float value);

/// The 10 bits of mantissa that tensor cores keep of a float.
inline float round_to_tf32(float value) {
  auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7F800000U) == 0x7F800000U) return value;
  bits += 0xFFF + (bits >> 13 & 1);
  return std::bit_cast<float>(bits & ~0x1FFFU);
}

/// Element `at` of an array, as C (float or double).
template <class C>
C load(Element type, const void* data, std::int64_t at) {
  switch (type) {
    case Element::f32:
      return static_cast<C>(static_cast<const float*>(data)[at]);
    case Element::f64:
      return static_cast<C>(static_cast<const double*>(data)[at]);
    case Element::bf16:
      return static_cast<C>(from_bf16(static_cast<const std::uint16_t*>(data)[at]));
    case Element::f16:
      return static_cast<C>(from_f16(static_cast<const std::uint16_t*>(data)[at]));
  }
  return C{};
}

template <class C>
void store(Element type, void* data, std::int64_t at, C value) {
  switch (type) {
    case Element::f32:
      static_cast<float*>(data)[at] = static_cast<float>(value);
      return;
    case Element::f64:
      static_cast<double*>(data)[at] = static_cast<double>(value);
      return;
    case Element::bf16:
      static_cast<std::uint16_t*>(data)[at] = to_bf16(static_cast<float>(value));
      return;
    case Element::f16:
      static_cast<std::uint16_t*>(data)[at] = to_f16(static_cast<float>(value));
      return;
  }
}

}  // namespace emulation
