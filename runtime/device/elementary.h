// exp, expm1, log, log1p, tanh, erf, sin and cos for the loops of element-wise operations. On the CPU a float
// takes the functions below, which have no branch and call nothing, so that a loop of them is vectorized
// (cpu/loops/widest.h); they use only what IEEE 754 rounds exactly, no fused product and sum, so that the
// bits are those of any processor. A double, and everything on a GPU, takes the standard library's. Errors,
// in units in the last place: docs/decisions/061.
//
// Each is range reduction and a polynomial, in the manner of Cephes and fdlibm; the coefficients are minimax
// fits of ours, weighted with the last place of the result.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#if defined(DTRAIN_KERNELS)
#define DTRAIN_HOST_DEVICE __host__ __device__
#else
#define DTRAIN_HOST_DEVICE
#endif

namespace dtrain::math {

#if !defined(DTRAIN_KERNELS)

/// c[0] + c[1] · x + c[2] · x² + …, by Horner's rule.
template <int kTerms>
inline float polynomial(float x, const float (&c)[kTerms]) {
  float sum = c[kTerms - 1];
  for (int i = kTerms - 2; i >= 0; --i) sum = sum * x + c[i];
  return sum;
}

/// 2^n, n from -126 to 127; 0 for -127 and infinity for 128.
inline float power_of_two(std::int32_t n) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(n + 127) << 23U);
}

/// x as n · ln 2 + (r - rest), the bracket at most ln 2 / 2 in size. |x| < 2^21.
struct Reduced {
  float r, rest;
  std::int32_t n;
};

inline Reduced reduced(float x) {
  // Adding this leaves the nearest integer in the last digits.
  constexpr float kShift = 12582912.0F;  // 1.5 · 2^23
  const float shifted = x * 1.44269504088896341F + kShift;
  const float n = shifted - kShift;
  // ln 2 in two numbers: the first has so few digits that its product with n, and r, are exact.
  return {x - n * 0.693359375F, n * -2.12194440e-4F,
          std::bit_cast<std::int32_t>(shifted) - std::bit_cast<std::int32_t>(kShift)};
}

/// e^x as (high + low) · 2^n, |low| < 0.07. |x| < 2^21.
struct ExpParts {
  float high, low;
  std::int32_t n;
};

inline ExpParts exp_parts(float x) {
  const Reduced part = reduced(x);
  const float whole = part.r - part.rest;
  const float q = polynomial(whole, {5.000000000e-01F, 1.666666567e-01F, 4.166646302e-02F, 8.333570324e-03F,
                                     1.393508399e-03F, 1.974027255e-04F});
  const float high = 1.0F + part.r;
  const float low = (part.r - (high - 1.0F)) + (whole * whole * q - part.rest);
  return {high, low, part.n};
}

/// Over- and underflow as rounding has it, subnormal results too.
inline float exp(float x) {
  const float above = x < -104.0F ? -104.0F : x;  // NaN stays
  const ExpParts parts = exp_parts(above > 89.0F ? 89.0F : above);
  const std::int32_t half = parts.n >> 1;
  return (parts.high + parts.low) * power_of_two(half) * power_of_two(parts.n - half);
}

/// exp in a third fewer instructions: 0 where the result would be subnormal, and a last place less exact.
inline float fast_exp(float x) {
  const float above = x < -88.0F ? -88.0F : x;  // n becomes -127, and 2^n the bits of 0
  const Reduced part = reduced(above > 89.0F ? 89.0F : above);
  const float whole = part.r - part.rest;
  const float q = polynomial(
      whole, {4.999999404e-01F, 1.666652113e-01F, 4.166826233e-02F, 8.368674666e-03F, 1.382105635e-03F});
  return (1.0F + (whole + whole * whole * q)) * power_of_two(part.n);
}

inline float sigmoid(float x) { return 1.0F / (1.0F + fast_exp(-x)); }

/// log(x · 2^exponent + correction) for a normal x > 0 that the correction is small beside.
inline float log_of(float x, std::int32_t exponent, float correction) {
  constexpr std::uint32_t kRootHalf = 0x3f3504f3U;  // √½, the least fraction
  const std::uint32_t above = std::bit_cast<std::uint32_t>(x) - kRootHalf;
  const auto n = static_cast<float>((static_cast<std::int32_t>(above) >> 23) + exponent);
  const float f = std::bit_cast<float>((above & 0x7fffffU) + kRootHalf) - 1.0F;
  const float p = polynomial(
      f, {3.333333433e-01F, -2.499997318e-01F, 1.999994665e-01F, -1.666905284e-01F, 1.428867131e-01F,
          -1.243205592e-01F, 1.099989712e-01F, -1.074437648e-01F, 1.076459140e-01F, -6.255052239e-02F});
  const float square = f * f;
  const float rest = f * square * p + (n * -2.12194440e-4F + correction) - 0.5F * square;
  return (f + rest) + n * 0.693359375F;
}

inline float log(float x) {
  constexpr float kSmallest = std::numeric_limits<float>::min(),
                  kInfinity = std::numeric_limits<float>::infinity();
  const bool subnormal = x < kSmallest;
  const float result = log_of(subnormal ? x * 8388608.0F : x, subnormal ? -23 : 0, 0.0F);
  const float finite = x == kInfinity ? x : (x == 0.0F ? -kInfinity : result);
  return x >= 0.0F ? finite : std::numeric_limits<float>::quiet_NaN();
}

inline float log1p(float x) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float sum = 1.0F + x;
  const float lost = x < 1.0F ? x - (sum - 1.0F) : 1.0F - (sum - x);
  const float result = log_of(sum, 0, lost / sum);
  const float finite = x == 0.0F || x == kInfinity ? x : (x == -1.0F ? -kInfinity : result);
  return x >= -1.0F ? finite : std::numeric_limits<float>::quiet_NaN();
}

inline float tanh(float x) {
  const float size = std::abs(x), square = x * x;
  const float small = x + x * square *
                              polynomial(square, {-3.333328366e-01F, 1.333148479e-01F, -5.374300480e-02F,
                                                  2.064910345e-02F, -5.715499166e-03F});
  const ExpParts e = exp_parts(2.0F * (size > 10.0F ? 10.0F : size));
  const float whole = e.high + e.low, low = (e.high - whole) + e.low;
  // 1 - 2 / (e^2x + 1): what roundings of e^2x and of the sum lost is taken to first order.
  const float scale = power_of_two(e.n), sum = whole * scale + 1.0F;
  const float lost = (whole * scale - (sum - 1.0F)) + low * scale, quotient = 2.0F / sum;
  const float large = 1.0F - (quotient - 0.5F * quotient * quotient * lost);
  return std::copysign(size < 0.625F ? small : large, x);  // -0 too
}

/// e^x - 1, without the digits that e^x loses where x is small.
inline float expm1(float x) {
  const float above = x < -104.0F ? -104.0F : x;  // NaN stays
  const ExpParts e = exp_parts(above > 89.0F ? 89.0F : above);
  const std::int32_t half = e.n >> 1;
  const float one = power_of_two(half), other = power_of_two(e.n - half);
  const float large = (e.high + e.low) * one * other;  // beside which 1 is nothing
  const float small = (e.high * one * other - 1.0F) + e.low * one * other;
  return std::copysign(e.n > 30 ? large : small, x);  // -0 too
}

/// Angles up to this size have their quarter turns taken away below; larger ones are the standard library's.
inline constexpr float kLargestAngle = 1048576.0F;

/// sin(x + turn · π / 2), in double: what 24 digits of x leave beside a multiple of π / 2 needs more than
/// they. A Taylor series of the rest, which is at most π / 4 in size. |x| <= kLargestAngle.
inline float turned_sine(float x, std::int64_t turn) {
  // Adding this leaves the nearest integer in the last digits.
  constexpr double kShift = 6755399441055744.0;  // 1.5 · 2^52
  // π / 2 in two numbers: the first has so few digits that its product with a count of quarter turns is
  // exact.
  constexpr double kHigh = 1.5707963267341256, kLow = 6.077100506506192e-11;
  const double wide = x, shifted = wide * 0.6366197723675814 + kShift, quarters = shifted - kShift;
  const double r = (wide - quarters * kHigh) - quarters * kLow, square = r * r;
  double sine = -1.0 / 39916800;
  sine = sine * square + 1.0 / 362880;
  sine = sine * square - 1.0 / 5040;
  sine = sine * square + 1.0 / 120;
  sine = sine * square - 1.0 / 6;
  sine = r * (1.0 + square * sine);  // -0 too
  double cosine = 1.0 / 479001600;
  cosine = cosine * square - 1.0 / 3628800;
  cosine = cosine * square + 1.0 / 40320;
  cosine = cosine * square - 1.0 / 720;
  cosine = cosine * square + 1.0 / 24;
  cosine = cosine * square - 0.5;
  cosine = 1.0 + square * cosine;
  const std::int64_t quadrant = std::bit_cast<std::int64_t>(shifted) + turn;
  const double size = (quadrant & 1) != 0 ? cosine : sine;
  return static_cast<float>((quadrant & 2) != 0 ? -size : size);
}

inline float sin(float x) { return turned_sine(x, 0); }
inline float cos(float x) { return turned_sine(x, 1); }

/// A quotient of polynomials, for gelu: its error is small beside 1, not beside a small result.
inline float erf(float x) {
  const float square = x * x;
  const float above = polynomial(square, {1.128379107e+00F, 1.896669120e-01F, 5.266809836e-02F,
                                          3.738351166e-03F, 2.850625897e-04F, 2.066476327e-06F});
  const float below = polynomial(square, {1.000000000e+00F, 5.014206767e-01F, 1.138189957e-01F,
                                          1.491428725e-02F, 1.157377963e-03F, 3.827007458e-05F});
  return std::abs(x) > 3.9F ? std::copysign(1.0F, x) : x * above / below;
}

/// The nearest float16, ties to even: 65520 and more become infinite, below 2^-14 steps are 2^-24. NaN stays.
inline float rounded_to_half(float x) {
  const auto raw = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = raw & 0x80000000U, size = raw & 0x7fffffffU;
  const std::uint32_t normal = (size + 0xfffU + ((size >> 13U) & 1U)) & ~0x1fffU;
  // The last digit of 0.5 is 2^-24: the addition rounds.
  const auto small = std::bit_cast<std::uint32_t>((std::bit_cast<float>(size) + 0.5F) - 0.5F);
  std::uint32_t rounded = size < 0x38800000U ? small : normal;  // 2^-14
  rounded = size < 0x477ff000U ? rounded : 0x7f800000U;         // 65520
  rounded = size > 0x7f800000U ? size : rounded;                // NaN
  return std::bit_cast<float>(sign | rounded);
}

#endif

// For a double, and on a GPU.
template <class T>
DTRAIN_HOST_DEVICE T exp(T x) {
  return std::exp(x);
}
template <class T>
DTRAIN_HOST_DEVICE T fast_exp(T x) {
  return std::exp(x);
}
template <class T>
DTRAIN_HOST_DEVICE T sigmoid(T x) {
  return T(1) / (T(1) + std::exp(-x));
}
template <class T>
DTRAIN_HOST_DEVICE T log(T x) {
  return std::log(x);
}
template <class T>
DTRAIN_HOST_DEVICE T log1p(T x) {
  return std::log1p(x);
}
template <class T>
DTRAIN_HOST_DEVICE T tanh(T x) {
  return std::tanh(x);
}
template <class T>
DTRAIN_HOST_DEVICE T erf(T x) {
  return std::erf(x);
}
template <class T>
DTRAIN_HOST_DEVICE T expm1(T x) {
  return std::expm1(x);
}
template <class T>
DTRAIN_HOST_DEVICE T sin(T x) {
  return std::sin(x);
}
template <class T>
DTRAIN_HOST_DEVICE T cos(T x) {
  return std::cos(x);
}
template <class T>
DTRAIN_HOST_DEVICE T rounded_to_half(T x) {
  const T size = x < T(0) ? -x : x;
  if (!(size < T(65520))) return x != x ? x : x * T(INFINITY);
  T rounded;
  if (size < T(6.103515625e-05)) {
    const T shift = sizeof(T) == 4 ? T(0.5) : T(268435456);  // its last digit is 2^-24
    rounded = (size + shift) - shift;
  } else {
    int exponent = 0;
    const T fraction = std::frexp(size, &exponent);
    const T shift = sizeof(T) == 4 ? T(4096) : T(2199023255552);  // its last digit is 2^-11
    rounded = std::ldexp((fraction + shift) - shift, exponent);
  }
  return std::copysign(rounded, x);
}

}  // namespace dtrain::math
